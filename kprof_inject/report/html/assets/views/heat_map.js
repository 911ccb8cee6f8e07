/** The SMs over time: which of them had CTAs at work, in which wave, and which have nothing to do in the end. */

import { element, tooltipIn } from "#dom";
import { counted, formatNs, formatShare, shortNs, smName } from "#format";
import { areDistinguishable, atWork, durationSpread, heightOf, LEFT, lookOf, paint, residentsOf, RIGHT, TOP } from "#views/heat_map_picture";

export const title = "SMs";

const LOWEST_ROW = 4;
const HIGHEST_ROW = 24;
const MAX_NAMED = 6;
// Height above and below the picture.
const CHROME = 96;

/** `launch.sections.heat_map` is a `HeatMap` of pictures.py; null where no timer says when CTAs ran. */
export function show(place, launch, context) {
  const picture = launch.sections.heat_map;
  if (!picture) {
    const why = launch.meta.ctas ? "No picture of the SMs: no timer was read when CTAs ran." : "No CTA ran.";
    place.append(element("p", { class: "view-empty", text: why }));
    return;
  }
  const { waves } = launch.meta;
  const residents = residentsOf(launch.scopes.ctas, picture.sms, waves.sms * waves.slots_per_sm);
  const spread = durationSpread(residents);
  const model = { picture, residents, spread, total: atWork(picture), colouring: "CTA duration", rowHeight: LOWEST_ROW, width: 0 };
  const canvas = element("canvas", { class: "heat-map", role: "img", "aria-label": "SMs over time" });
  const room = element("div", { class: "heat-map-room" }, [canvas]);
  const legend = element("div", { class: "sm-legend" });
  const tooltip = tooltipIn(place);
  const redraw = () => {
    if (!model.width) return;
    paint(canvas, model, lookOf(context.theme));
    legend.replaceChildren(...LEGENDS[model.colouring](model), legendItem("idle-shade", "the SM has no more work"));
  };
  const choose = () => {
    model.colouring = colouring.value;
    redraw();
  };
  const colouring = element("select", { on: { change: choose } }, Object.keys(LEGENDS).map((text) => element("option", { value: text, text })));
  place.append(
    element("div", { class: "heat-map-view" }, [
      element("div", { class: "view-toolbar" }, [element("label", {}, ["Colour ", colouring]), legend]),
      room,
      element("p", { class: "view-hint heat-map-says", text: saysOf(launch, picture) }),
    ]),
  );
  let isFirst = true;
  new ResizeObserver(([{ contentRect }]) => {
    const width = Math.floor(contentRect.width);
    if (!width || width === model.width) return;
    model.width = width;
    const rowHeight = Math.floor((place.clientHeight - (heightOf(0, 0) + CHROME)) / picture.sms.length);
    model.rowHeight = Math.min(Math.max(rowHeight, LOWEST_ROW), HIGHEST_ROW);
    const areShownSingly = areDistinguishable(model.residents, picture.end_ns - picture.begin_ns, width, model.rowHeight);
    if (isFirst) model.colouring = areShownSingly ? "CTA duration" : "CTAs at work";
    isFirst = false;
    colouring.value = model.colouring;
    redraw();
  }).observe(room);
  context.onThemeChange(redraw);
  listen(canvas, model, launch, context, tooltip);
}

const legendItem = (name, text) => element("span", { class: "legend-item" }, [element("span", { class: `sm-swatch ${name}` }), text]);

const LEGENDS = {
  "CTA duration": ({ spread: { medianNs, reach } }) => [
    legendItem(
      "duration-scale",
      `per CTA ${shortNs(medianNs / reach)} or less to ${shortNs(medianNs * reach)} or more; grey: the median, ${shortNs(medianNs)}`,
    ),
  ],
  waves: ({ residents: { waves } }) => {
    const before = ["wave-even", "wave-odd"].slice(0, waves - 1).map((name, index) => legendItem(name, wavesFrom(index + 1, waves - 1)));
    return waves === 1 ? [legendItem("wave-even", "one wave")] : [...before, legendItem("wave-last", `the last wave, ${waves}`)];
  },
  "CTAs at work": ({ picture }) => [legendItem("heat-scale", `0 to ${Number(picture.most.toFixed(1))} CTAs at work on an SM`)],
};

/** Every second wave from the first one up to the last. */
function wavesFrom(first, last) {
  if (first + 2 > last) return `wave ${first}`;
  return first + 4 > last ? `waves ${first}, ${first + 2}` : `waves ${first}, ${first + 2}, …`;
}

function saysOf({ meta: { ctas, waves, ending } }, picture) {
  const said = [
    `${counted(ctas, "CTA")} on ${counted(picture.sms.length + picture.sms_left_out, "SM")}, room for ${waves.slots_per_sm} on each.`,
    "Time starts at the first CTA. Point at a CTA for its times; click to see it in the timeline.",
  ];
  if (ending?.idle_share) said.push(`From the dashed line on, SMs run out of work (the tail): they idle for ${formatShare(ending.idle_share)} of the launch on average.`);
  if (picture.sms_left_out) said.push(`${counted(picture.sms_left_out, "more SM")} hidden.`);
  return said.join(" ");
}

function listen(canvas, model, launch, context, tooltip) {
  const under = (event) => {
    const { left, top } = canvas.getBoundingClientRect();
    const { picture, width } = model;
    const share = (event.clientX - left - LEFT) / (width - LEFT - RIGHT);
    const row = Math.floor((event.clientY - top - TOP) / model.rowHeight);
    if (share < 0 || share > 1 || row < 0 || row >= picture.sms.length) return null;
    const ns = picture.begin_ns + share * (picture.end_ns - picture.begin_ns);
    const { of, begin, end } = model.residents;
    return { row, ns, items: of[row].filter((item) => begin[item] <= ns && ns <= end[item]) };
  };
  canvas.addEventListener("mousemove", (event) => {
    const found = under(event);
    if (found) tooltip.show(event, linesOf(found, model, launch.scopes.ctas));
    else tooltip.hide();
    canvas.classList.toggle("can-open", Boolean(found?.items.length));
  });
  canvas.addEventListener("mouseleave", tooltip.hide);
  canvas.addEventListener("click", (event) => {
    const [item] = under(event)?.items ?? [];
    if (item === undefined) return;
    tooltip.hide();
    context.goTo({ cta: launch.scopes.ctas.cta[model.residents.cta[item]] });
  });
}

function linesOf({ row, ns, items }, { picture, residents }, ctas) {
  const since = picture.begin_ns;
  const named = items.slice(0, MAX_NAMED).map((item) => {
    const [begin, end] = [residents.begin[item], residents.end[item]];
    const number = ctas.cta[residents.cta[item]];
    return `CTA ${number}: ${formatNs(begin - since)} to ${formatNs(end - since)} (${formatNs(end - begin)}), wave ${residents.wave[item] + 1}`;
  });
  const span = picture.end_ns - since;
  return [
    `${smName(picture.sms[row])} at ${formatNs(ns - since)}: ${counted(items.length, "CTA")} at work`,
    ...named,
    ...(items.length > MAX_NAMED ? [`and ${items.length - MAX_NAMED} more`] : []),
    `this SM: ${counted(picture.counts[row], "CTA")}, done ${formatNs(picture.end_ns - picture.done_ns[row])} before the end` +
      (span ? ` (${formatShare((picture.end_ns - picture.done_ns[row]) / span)})` : ""),
  ];
}
