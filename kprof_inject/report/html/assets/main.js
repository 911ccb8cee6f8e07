/**
 * The page: a launch, and views of it in tabs.
 *
 * A view is a module with
 *
 *   title                            the text on its tab
 *   isWanted(report)                 optional: whether a page of this report has the view
 *   show(element, launch, context)   fills the empty `element`; called for each launch when the view is first looked at
 *
 * `launch` is `Launch` of `#data`: `launch.meta` and `launch.sections` (records of data.py, code.py and pictures.py),
 * `launch.scopes` and `launch.flights` (`Scopes` and `Flights` of `#data`: typed arrays, times in ns since the start of the
 * launch).
 * `context` is
 *
 *   theme            {isDark, css("ink"): a custom property of style.css}
 *   goTo({cta, startNs, endNs, scope, index})   opens the timeline there; all but the number of the `cta` may be left
 *                    out. `scope` is an index in meta.scopes, `index` one of launch.scopes
 *   onThemeChange(callback)   called when light becomes dark or the other way round, until the launch is changed
 *   onForget(callback)        called before another launch is shown
 *   report, shownLaunch          what `_page` of document.py writes first; the index of `launch`
 *   openLaunch(index)            shows another launch, in the timeline
 *   timeline, onTimeline({ctas, range})   what the timeline shows at first, and what it shows now
 *
 * No view may use innerHTML or set a style attribute (`element.style.x = ...` is fine): the page's policy forbids the
 * latter, and names in a capture are hostile. `#dom` has `element(tag, properties, children)`.
 */

import { launchReader, readReport } from "#data";
import { fillChooser, notices, showAnswer, showTitle } from "#masthead";
import { onKey, readHash, showHelp, Tabs, writeHash } from "#navigation";
import { exportOnKey } from "#tables";
import { pageTheme } from "#theme";

const VIEWS = {
  kernels: "#views/kernels",
  timeline: "#timeline/view",
  overview: "#views/overview",
  heat_map: "#views/heat_map",
  scopes: "#views/scopes",
  source: "#views/source",
  ttgir: "#views/ttgir",
};
const byId = (id) => document.getElementById(id);

async function start() {
  const report = await readReport();
  const theme = pageTheme();
  const state = readHash(location.hash);
  const views = (await loadedViews()).filter(({ view }) => view.isWanted?.(report) ?? true);
  const tabs = new Tabs(byId("tabs"), byId("views"), views);
  const open = launchReader(report);
  // Of the kernel that takes the most time.
  const firstLaunch = report.kernels[0]?.launch ?? 0;
  const page = { report, theme, state, tabs, open, forget: [], firstTab: views[0].name, firstLaunch };

  showThemeButton(theme);
  showHelp(byId("help"), byId("help-button"));
  exportOnKey();
  if (!report.launches.length) {
    byId("loading").textContent = "The capture contains no launches.";
    return;
  }
  state.launch = Math.min(state.launch ?? firstLaunch, report.launches.length - 1);
  fillChooser(byId("launch-chooser"), report.launches, state.launch, (index) => changeLaunch(page, index));
  tabs.onChange = (name) => remember(page, { tab: name });
  addEventListener("hashchange", () => followHash(page));
  await showLaunch(page);
}

/** @returns {Promise<{name: string, view: Object}[]>} */
async function loadedViews() {
  const names = Object.keys(VIEWS);
  const loaded = await Promise.allSettled(names.map((name) => import(VIEWS[name])));
  return loaded.flatMap(({ value, reason }, index) => {
    if (reason) reportError(reason);
    return value ? [{ name: names[index], view: value }] : [];
  });
}

async function showLaunch(page) {
  const { report, state, tabs } = page;
  const index = state.launch;
  const launch = await page.open(index);
  // Another one was chosen meanwhile.
  if (index !== state.launch) return;
  for (const forget of page.forget.splice(0)) forget();
  byId("loading")?.remove();
  showTitle(byId("launch-title"), launch.meta);
  showAnswer(byId("answer"), launch.meta, () => tabs.select("overview"));
  const notice = notices(launch).join(" ");
  byId("notice").textContent = notice;
  byId("notice").hidden = !notice;
  tabs.open(launch, contextOf(page), state.tab);
}

function contextOf(page) {
  const { theme, tabs, state } = page;
  return {
    theme,
    onThemeChange: (callback) => page.forget.push(theme.onChange(callback)),
    goTo: (target) => {
      tabs.select("timeline");
      tabs.shown("timeline")?.goTo(target);
    },
    report: page.report,
    shownLaunch: state.launch,
    openLaunch: (index) => changeLaunch(page, index, "timeline"),
    timeline: { ctas: state.ctas, range: state.range },
    onTimeline: (view) => remember(page, view),
    onForget: (callback) => page.forget.push(callback),
  };
}

async function changeLaunch(page, index, tab = page.state.tab) {
  remember(page, { launch: index, ctas: [], range: null, tab });
  fillChooser(byId("launch-chooser"), page.report.launches, index, (other) => changeLaunch(page, other));
  await showLaunch(page);
}

function remember(page, changes) {
  Object.assign(page.state, changes);
  const hash = writeHash(page.state, page.firstTab, page.firstLaunch);
  if (hash !== location.hash) history.replaceState(null, "", hash || " ");
}

/** Follows an address that the user edited. The page's own changes of it raise no such event. */
async function followHash(page) {
  const { launch: named, tab, ctas, range } = readHash(location.hash);
  const launch = named ?? page.firstLaunch;
  const other = launch !== page.state.launch && launch < page.report.launches.length;
  Object.assign(page.state, { tab, ctas, range, launch: other ? launch : page.state.launch });
  if (other) {
    fillChooser(byId("launch-chooser"), page.report.launches, launch, (index) => changeLaunch(page, index));
    await showLaunch(page);
    return;
  }
  page.tabs.select(tab ?? page.firstTab);
  page.tabs.shown("timeline")?.follow({ ctas, range });
}

function showThemeButton(theme) {
  const button = byId("theme-button");
  const name = () => {
    button.textContent = theme.isDark ? "☀" : "☾";
    button.title = theme.isDark ? "Light" : "Dark";
  };
  button.addEventListener("click", () => theme.toggle());
  onKey("t", theme.toggle);
  theme.onChange(name);
  name();
}

try {
  await start();
} catch (error) {
  byId("notice").hidden = false;
  byId("notice").textContent = `This page is damaged and cannot be shown: ${error.message}`;
  byId("loading")?.remove();
  reportError(error);
}
// Once what was drawn is on the screen.
requestAnimationFrame(() => setTimeout(() => performance.mark("kprof:ready")));
