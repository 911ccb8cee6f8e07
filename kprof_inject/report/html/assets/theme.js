/** Light and dark: the colours are in `style.css`, those of scopes in `scope_colours.py`. */

const DARK_INK = "#11151c";
const LIGHT_INK = "#ffffff";

/** @param {string} hex `#rrggbb` @returns {[number, number, number]} 0 to 255 */
function channels(hex) {
  return [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
}

/** `share` of the second colour in the first. */
export function mixed(first, second, share) {
  const other = channels(second);
  const parts = channels(first).map((value, index) => Math.round(value + (other[index] - value) * share));
  return `#${parts.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
}

/** Returns the contrast ratio of two colours, 1 to 21, as WCAG 2.2 defines it. */
export function contrast(first, second) {
  const [low, high] = [luminance(first), luminance(second)].sort((one, other) => one - other);
  return (high + 0.05) / (low + 0.05);
}

function luminance(hex) {
  const [red, green, blue] = channels(hex).map((value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** The ink that is read better on this ground. */
export function inkOn(ground) {
  return contrast(ground, DARK_INK) >= contrast(ground, LIGHT_INK) ? DARK_INK : LIGHT_INK;
}

/**
 * The page's theme: follows the system until the reader chooses. On paper it is light.
 * @returns {{isDark: boolean, css: (name: string) => string, toggle: () => void,
 *     onChange: (callback: () => void) => () => void}} `onChange` returns a function that unsubscribes
 */
export function pageTheme() {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const callbacks = new Set();
  let chosen = null;
  let isPrinted = false;
  const theme = {
    get isDark() {
      return !isPrinted && (chosen ?? system.matches);
    },
    /** A custom property of the style sheet: `css("ink")` is `--ink`. */
    css: (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim(),
    toggle: () => {
      chosen = !theme.isDark;
      apply();
    },
    onChange: (callback) => {
      callbacks.add(callback);
      return () => callbacks.delete(callback);
    },
  };
  const apply = () => {
    root.dataset.theme = theme.isDark ? "dark" : "light";
    for (const callback of callbacks) callback();
  };
  system.addEventListener("change", apply);
  for (const [event, printed] of [["beforeprint", true], ["afterprint", false]]) {
    addEventListener(event, () => {
      isPrinted = printed;
      apply();
    });
  }
  apply();
  return theme;
}
