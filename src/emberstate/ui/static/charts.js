// Draws the charts of the batches page with uPlot: elements with data-chart, from the JSON that data-src names.
"use strict";
(() => {
  const HEIGHT = 190;
  const charts = new Map();  // element → {plot, key}
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = (place) => css(`--c${(place % 10) + 1}`);

  function bytes(value) {
    if (value === null || value === undefined) return "–";
    let number = value;
    for (const unit of ["B", "KiB", "MiB", "GiB"]) {
      if (number < 1024) return `${unit === "B" ? number : number.toFixed(1)} ${unit}`;
      number /= 1024;
    }
    return `${number.toFixed(1)} TiB`;
  }
  function seconds(value) {
    if (value === null || value === undefined) return "–";
    if (value < 1) return `${Math.round(value * 1000)} ms`;
    if (value < 120) return `${+value.toFixed(2)} s`;
    if (value < 7200) return `${+(value / 60).toFixed(1)} min`;
    return value < 172800 ? `${+(value / 3600).toFixed(1)} h` : `${+(value / 86400).toFixed(1)} d`;
  }
  const count = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en").replaceAll(",", "\u202f"));

  // Times of the axis, by the distance of its ticks: as they are, and at a new year, month, day, hour, minute, second.
  const date = "\n{YYYY}-{MM}-{DD}";
  const TIMES = [
    [86400 * 365, "{YYYY}", null, null, null, null, null, null, 1],
    [86400, "{MM}-{DD}", "\n{YYYY}", null, null, null, null, null, 1],
    [60, "{HH}:{mm}", date, null, date, null, null, null, 1],
    [1, "{HH}:{mm}:{ss}", date, null, date, null, null, null, 1],
  ];
  const POWERS = Array.from({ length: 50 }, (_, power) => 2 ** power);

  // What each chart shows: [name, values] in order, and how a value is written.
  const KINDS = {
    parts: (data) => ({ rows: Object.entries(data.parts), text: seconds, stacked: true }),
    rows: (data) => ({ rows: [["in", data.rows_in], ["out", data.rows_out], ["late", data.late_rows]], text: count }),
    slots: (data) => ({ rows: [["slowest", data.slowest], ["median", data.median]], text: seconds }),
    lag: (data) => ({ rows: [["lag", data.lag]], text: seconds }),
    bytes: (data) => ({ rows: [["stored", data.stored_bytes], ["delta", data.delta_bytes]], text: bytes, steps: POWERS }),
  };

  function marks(plot, list) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.lineWidth = devicePixelRatio;
    for (const mark of list) {
      const x = Math.round(plot.valToPos(mark.time, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = css(mark.kind === "failure" ? "--bad" : "--faint");
      ctx.setLineDash(mark.kind === "failure" ? [] : [4, 4]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }

  function draw(element, answer) {
    const { rows, text, stacked, steps } = KINDS[element.dataset.chart](answer.series);
    const time = answer.series.time;
    const raw = rows.map(([, values]) => values);
    let shown = raw;
    if (stacked) {  // the last part is the lowest, so that sums are drawn from the highest to the lowest
      const sums = new Array(time.length).fill(0);
      shown = raw.map(() => null);
      for (let part = raw.length - 1; part >= 0; part--) {
        raw[part].forEach((value, place) => { sums[place] += value; });
        shown[part] = sums.slice();
      }
    }
    const key = rows.map(([name]) => name).join() + element.clientWidth;
    const known = charts.get(element);
    if (known && known.key === key) {
      Object.assign(known, { raw, marks: answer.marks });
      known.plot.setData([time, ...shown]);
      return;
    }
    if (known) known.plot.destroy();
    const state = { key, raw, marks: answer.marks };
    const axis = { stroke: css("--muted"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const few = time.length < 60;
    state.plot = new uPlot({
      width: element.clientWidth, height: HEIGHT,
      tzDate: (stamp) => uPlot.tzDate(new Date(stamp * 1e3), "Etc/UTC"),
      cursor: { sync: { key: "batches" }, points: { size: 5 }, drag: { x: true, y: false } },
      scales: { y: { range: (plot, least, most) => [0, most > 0 ? most * 1.06 : 1] } },
      axes: [{ ...axis, space: 70, values: TIMES }, { ...axis, size: 68, ...(steps && { incrs: steps }), values: (plot, values) => values.map(text) }],
      series: [
        { label: "time", value: (plot, value) => (new Date((value ?? plot.data[0].at(-1)) * 1e3).toISOString().slice(0, 19).replace("T", " ")) },
        ...rows.map(([name], place) => ({
          label: name, stroke: colour(place), width: stacked ? 0.5 : 1.5, fill: stacked ? colour(place) : undefined,
          points: { show: few && !stacked, size: 4 },
          value: (plot, value, series, at) => text(state.raw[series - 1].at(at ?? -1)),  // the newest if none is pointed at
        })),
      ],
      hooks: { draw: [(plot) => marks(plot, state.marks)] },
    }, [time, ...shown], element);
    charts.set(element, state);
  }

  async function refresh() {
    const elements = [...document.querySelectorAll("[data-chart]")];
    for (const element of charts.keys()) if (!element.isConnected) { charts.get(element).plot.destroy(); charts.delete(element); }
    if (!elements.length) return;
    try {
      const answer = await (await fetch(elements[0].dataset.src, { cache: "no-store" })).json();
      elements.forEach((element) => draw(element, answer));
    } catch { /* the page says that the server is not reachable */ }
  }

  function again() {
    for (const { plot } of charts.values()) plot.destroy();
    charts.clear();
    refresh();
  }
  document.addEventListener("emberstate:fresh", refresh);
  document.addEventListener("emberstate:theme", again);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  let later = 0;
  addEventListener("resize", () => { clearTimeout(later); later = setTimeout(refresh, 150); });
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", refresh); else refresh();
})();
