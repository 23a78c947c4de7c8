// Draws the visible part. Nothing here changes what is shown.

const canvas = document.getElementById("canvas");
const overview = document.getElementById("overview");
const pen = canvas.getContext("2d", { alpha: false });
const MONO = '12px ui-monospace, "SF Mono", "Cascadia Mono", "Noto Sans Mono", "DejaVu Sans Mono", monospace';
const SANS = '12px system-ui, -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif';
const SMALL = SANS.replace("12px", "10.5px");

let colours = {};
let charWidth = 7.2;
let hatching = null;
const selection = { bar: -1, gap: -1, found: null };

function readColours() {
  const style = getComputedStyle(document.documentElement);
  colours = {};
  for (const name of ["paper", "sheet", "ink", "soft", "rule", "band", "ok", "ok-edge", "unknown", "unknown-edge",
    "failed-edge", "core", "core-fill", "context", "bad", "bad-ink", "order", "good", "warn", "focus"]) {
    colours[name] = style.getPropertyValue(`--${name}`).trim();
  }
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const ink = tile.getContext("2d");
  ink.strokeStyle = colours["failed-edge"];
  ink.globalAlpha = 0.6;
  ink.beginPath();
  for (const shift of [-6, 0, 6]) {
    ink.moveTo(shift, 6);
    ink.lineTo(shift + 6, 0);
  }
  ink.stroke();
  hatching = pen.createPattern(tile, "repeat");
  pen.font = MONO;
  charWidth = pen.measureText("0".repeat(50)).width / 50;
}

function resize() {
  const box = document.getElementById("timeline");
  const ratio = window.devicePixelRatio || 1;
  view.width = box.clientWidth;
  view.height = Math.min(view.contentHeight + RULER, Math.max(220, Math.round(window.innerHeight * 0.6)));
  for (const [sheet, height] of [[canvas, view.height], [overview, 14]]) {
    sheet.width = Math.round(view.width * ratio);
    sheet.height = Math.round(height * ratio);
    sheet.style.height = `${height}px`;
    sheet.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
  }
  scrollTo(view.scroll);
}

let isDue = false;
function redraw() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    draw();
  });
}

function draw() {
  const { width, height } = view;
  pen.fillStyle = colours.sheet;
  pen.fillRect(0, 0, width, height);
  pen.textBaseline = "middle";
  drawRuler();
  pen.save();
  pen.beginPath();
  pen.rect(0, RULER, width, height - RULER);
  pen.clip();
  pen.translate(0, RULER - view.scroll);
  drawStrips();
  pen.save();
  pen.beginPath();
  pen.rect(GUTTER, view.scroll, width - GUTTER, height);
  pen.clip();
  drawInstant();
  drawMarks();
  drawOrders(drawLine);
  drawBars();
  drawOrders(drawDots);
  drawLoosePoints();
  drawSelection();
  pen.restore();
  pen.restore();
  drawOverview();
}

// --- ruler and lanes ---

function tickStep(span) {
  const rough = span / Math.max(2, (view.width - GUTTER) / 110);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
  return view.axis === "order" ? Math.max(1, Math.round(step)) : Math.max(1, step);
}

function timeText(ns, step) {
  const [unit, name] = step >= 1e8 ? [1e9, "s"] : step >= 1e5 ? [1e6, "ms"] : step >= 100 ? [1e3, "µs"] : [1, "ns"];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9));
  return `${(ns / unit).toFixed(Math.min(digits, 9))} ${name}`;
}

function drawRuler() {
  const step = tickStep(view.to - view.from);
  pen.fillStyle = colours.soft;
  pen.font = SMALL;
  pen.textAlign = "left";
  pen.fillText(view.axis === "order" ? "event" : "time", 14, RULER / 2 + 1);
  pen.textAlign = "center";
  pen.strokeStyle = colours.rule;
  pen.lineWidth = 1;
  pen.beginPath();
  const first = Math.ceil(Math.max(0, placeOf(GUTTER)) / step);
  const last = Math.floor(Math.min(axisLength(), view.to) / step);
  for (let tick = first; tick <= last; tick += 1) {
    const x = Math.round(xOf(tick * step)) + 0.5;
    pen.moveTo(x, RULER - 5);
    pen.lineTo(x, view.height);
    const text = view.axis === "order" ? (tick * step).toLocaleString("en") : timeText(tick * step, step);
    pen.fillText(text, x, RULER / 2 + 1);
  }
  pen.moveTo(0, RULER - 0.5);
  pen.lineTo(view.width, RULER - 0.5);
  pen.stroke();
  pen.textAlign = "left";
}

function cutTo(text, room) {
  const chars = Math.floor(room / charWidth);
  if (text.length <= chars) return text;
  return chars < 3 ? "" : `${text.slice(0, chars - 1)}…`;
}

function drawStrips() {
  const [top, bottom] = [view.scroll, view.scroll + view.height];
  for (const strip of view.strips) {
    if (strip.y > bottom || strip.y + strip.height < top) continue;
    const lane = lanes[strip.lane];
    const thin = lane.kind !== "operations";
    pen.strokeStyle = colours.rule;
    pen.beginPath();
    pen.moveTo(0, strip.y + 0.5);
    pen.lineTo(view.width, strip.y + 0.5);
    if (!lane.is_inner) pen.stroke();
    const isOwn = selection.bar >= 0 && bars.lane[selection.bar] === strip.lane;
    pen.fillStyle = thin ? colours.soft : colours.ink;
    pen.font = thin ? SMALL : isOwn ? `600 ${SANS}` : SANS;
    const name = thin ? fitted(lane.name, GUTTER - 24) : cutTo(lane.name, GUTTER - 24);
    pen.fillText(name, lane.is_inner ? 26 : 14, strip.y + (thin ? THIN / 2 + 1 : ABOVE + BAR / 2));
  }
}

// --- faults, lifetimes, rounds ---

function drawMarks() {
  pen.font = SMALL;
  const timed = view.axis === "time";
  const points = new Map();
  for (const mark of marks) {
    const y = view.laneY[mark.lane];
    if (y < 0) continue;
    const x = xOf(timed ? mark.at_ns : mark.at);
    const until = timed ? mark.until_ns : mark.until;
    if (mark.until < 0) {
      if (!points.has(mark.lane)) points.set(mark.lane, []);
      points.get(mark.lane).push([x, mark]);
    } else if (x < view.width && xOf(until) > GUTTER) {
      drawSpan(mark, Math.max(x, GUTTER - 4), Math.min(xOf(until), view.width + 4), y);
    }
  }
  for (const [lane, list] of points) {
    list.sort((one, other) => one[0] - other[0]);
    let last = -Infinity;
    list.forEach(([x, mark], number) => {
      const next = number + 1 < list.length ? list[number + 1][0] : Infinity;
      if (x > view.width || next < GUTTER - 400 || x - last < 1) return;
      drawPoint(mark, x, view.laneY[lane], Math.min(next - x, 1e4));
      last = x;
    });
  }
}

function drawSpan(mark, x, end, y) {
  const isFault = mark.kind === "fault";
  pen.fillStyle = isFault ? colours.bad : mark.kind === "block" ? colours["core-fill"] : colours.rule;
  pen.globalAlpha = isFault ? 0.25 : 1;
  pen.fillRect(x, y + 5, Math.max(2, end - x), THIN - 9);
  pen.globalAlpha = 1;
  const text = fitted(mark.text, end - x - 8);
  pen.fillStyle = colours.ink;
  if (text) pen.fillText(text, x + 5, y + THIN / 2 + 1);
}

function fitted(text, room) {
  const chars = Math.floor(room / 5.6);
  if (text.length <= chars) return text;
  return chars < 3 ? "" : `${text.slice(0, chars - 1)}…`;
}

function drawPoint(mark, x, y, room) {
  const colour = { start: colours.good, leave: colours.soft, round: colours.order }[mark.kind] || colours.bad;
  pen.strokeStyle = colour;
  pen.fillStyle = colour;
  const middle = y + THIN / 2;
  pen.lineWidth = 1.6;
  pen.beginPath();
  if (mark.kind === "round" || mark.kind === "start") {
    pen.arc(x, middle, 3.2, 0, 2 * Math.PI);
    pen.fill();
  } else {
    pen.moveTo(x - 4, middle - 4);
    pen.lineTo(x + 4, middle + 4);
    pen.moveTo(x + 4, middle - 4);
    pen.lineTo(x - 4, middle + 4);
    pen.stroke();
  }
  pen.lineWidth = 1;
  if (mark.kind === "round" && room > 8) {
    pen.globalAlpha = 0.35;
    pen.setLineDash([2, 3]);
    pen.beginPath();
    pen.moveTo(x, middle + 4);
    pen.lineTo(x, view.contentHeight);
    pen.stroke();
    pen.setLineDash([]);
    pen.globalAlpha = 1;
  }
  const text = fitted(mark.text, room - 14);
  pen.fillStyle = colours.ink;
  if (text) pen.fillText(text, x + 8, middle + 1);
}

// --- operations ---

// Styles in the order in which they are drawn: what matters most comes last, on top.
const STYLES = ["ok", "failed", "unknown", "context", "core", "failing"];

function styleOf(bar) {
  if (bar === page.failing) return 5;
  if (isCore[bar]) return 4;
  if (isContext[bar]) return 3;
  return bars.outcome[bar] === FAILED ? 1 : isOpen(bar) ? 2 : 0;
}

const styles = Uint8Array.from({ length: count }, (_, bar) => styleOf(bar));

function drawBars() {
  const visible = STYLES.map(() => []);
  const perPixel = 1 / scale();
  const from = placeOf(GUTTER);
  const to = view.to + 20 * perPixel;
  const [top, bottom] = [view.scroll - rowHeight, view.scroll + view.height];
  for (const row of view.rows) {
    if (row.y > bottom || row.y < top) continue;
    const { bars: list, y } = row;
    let [drawnTo, drawnStyle] = [-Infinity, -1];
    for (let at = firstAt(row, from); at < list.length; at += 1) {
      const bar = list[at];
      const start = view.start[bar];
      if (start > to) break;
      const style = styles[bar];
      // What falls into pixels that are drawn already adds nothing, unless it matters more.
      if (style <= drawnStyle && view.end[bar] < drawnTo && style < 3) continue;
      const next = at + 1 < list.length ? view.start[list[at + 1]] : Infinity;
      visible[style].push(bar, y, next);
      drawnTo = Math.max(start + perPixel, view.end[bar]);
      drawnStyle = style;
    }
  }
  pen.font = MONO;
  visible.forEach((list, style) => drawStyle(STYLES[style], list));
}

function drawStyle(style, list) {
  if (!list.length) return;
  const isDim = hasCore && !view.onlyCore && style !== "core" && style !== "failing" && style !== "context";
  pen.globalAlpha = isDim ? 0.62 : 1;
  const fill = { ok: "ok", failed: null, unknown: "unknown", context: "ok", core: "core-fill", failing: "bad" }[style];
  const edge = { ok: "ok-edge", failed: "failed-edge", unknown: "unknown-edge", context: "context", core: "core", failing: "bad" }[style];
  const boxes = new Path2D();
  for (let at = 0; at < list.length; at += 3) {
    const bar = list[at];
    const x = Math.max(xOf(view.start[bar]), GUTTER - 8);
    const end = Math.min(xOf(view.end[bar]), view.width + 8);
    const width = Math.max(end - x, style === "failing" ? 3 : 1.5);
    if (width > 7) boxes.roundRect(x, list[at + 1], width, BAR, 3.5);
    else boxes.rect(x, list[at + 1], width, BAR);
    if (isOpen(bar)) drawFade(bar, end, list[at + 1]);
  }
  // Lines behind a dim bar would show through.
  pen.fillStyle = colours.sheet;
  pen.globalAlpha = 1;
  pen.fill(boxes);
  pen.globalAlpha = isDim ? 0.62 : 1;
  pen.fillStyle = style === "failed" ? hatching : colours[fill];
  pen.fill(boxes);
  pen.strokeStyle = colours[edge];
  pen.lineWidth = style === "core" || style === "context" ? 1.8 : 1;
  if (style === "unknown" || style === "context") pen.setLineDash([4, 3]);
  pen.stroke(boxes);
  pen.setLineDash([]);
  pen.fillStyle = style === "failing" ? colours["bad-ink"] : style === "failed" ? colours.soft : colours.ink;
  for (let at = 0; at < list.length; at += 3) drawLabel(list[at], list[at + 1], list[at + 2], style);
  pen.globalAlpha = 1;
}

function drawFade(bar, x, y) {
  const end = Math.min(xOf(view.fade[bar]), view.width + 8);
  if (end - x < 2) return;
  const whole = xOf(view.fade[bar]) - xOf(view.end[bar]);
  const fadeWidth = Math.min(60, whole);
  const paint = pen.createLinearGradient(xOf(view.fade[bar]) - fadeWidth, 0, xOf(view.fade[bar]), 0);
  paint.addColorStop(0, `${colours.unknown}90`);
  paint.addColorStop(1, `${colours.unknown}00`);
  pen.fillStyle = paint;
  pen.fillRect(x, y, end - x, BAR);
}

function drawLabel(bar, y, next, style) {
  const x = Math.max(xOf(view.start[bar]), GUTTER);
  const end = Math.min(xOf(isOpen(bar) ? view.fade[bar] : view.end[bar]), view.width);
  const room = end - x - 12;
  const free = Math.min(xOf(next), view.width) - end - 10;
  if (room < 3 * charWidth && free < 5 * charWidth) return;
  const sign = { failed: "✗ ", failing: "✗ " }[style] || "";
  const label = sign + labelOf(bar);
  const inside = cutTo(label, room);
  // Beside a short bar, if nothing follows soon.
  const beside = inside === label || isOpen(bar) ? "" : cutTo(label, free);
  if (beside === label || (inside.length < 9 && beside.length > inside.length + 3)) {
    const kept = pen.fillStyle;
    if (style === "failing") pen.fillStyle = colours.bad;
    pen.fillText(beside, end + 5, y + BAR / 2 + 0.5);
    pen.fillStyle = kept;
  } else if (inside) {
    pen.fillText(inside, x + 6, y + BAR / 2 + 0.5);
  }
}

// --- orders ---

function pointY(bar) {
  const row = view.rows[view.rowOf[bar]];
  return row ? row.y + BAR : NaN;
}

// Draws something of each order that is shown, from its first visible group to its last.
function drawOrders(drawPart) {
  for (const order of orders) {
    if (view.key >= 0 && order.key !== view.key && order.key >= 0) continue;
    const { groups } = order;
    const first = Math.max(0, firstGroup(groups, placeOf(GUTTER)) - 1);
    const last = Math.min(groups.length - 1, firstGroup(groups, view.to));
    const spacing = (view.width - GUTTER) / (last - first + 1);
    if (last >= first && spacing >= 3) drawPart(groups.slice(first, last + 1), first, spacing);
  }
}

// The first group of an order whose point is at or after a place.
function firstGroup(groups, place) {
  let [low, high] = [0, groups.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (view.point[groups[middle][0]] < place) low = middle + 1;
    else high = middle;
  }
  return low;
}

function drawLine(groups) {
  // Lines of several objects would be a tangle.
  if (orders.length > 1 && view.key < 0) return;
  const path = new Path2D();
  for (const group of groups) {
    for (const bar of group) {
      const y = pointY(bar);
      if (!Number.isNaN(y)) path.lineTo(xOf(view.point[bar]), y);
    }
  }
  pen.strokeStyle = colours.order;
  pen.globalAlpha = 0.5;
  pen.lineWidth = 1.2;
  pen.stroke(path);
  pen.globalAlpha = 1;
}

function drawDots(groups, first, spacing) {
  const dots = new Path2D();
  const size = spacing > 8 ? 3.4 : 2;
  pen.font = SMALL;
  pen.fillStyle = colours.order;
  groups.forEach((group, number) => {
    for (const bar of group) {
      const [x, y] = [xOf(view.point[bar]), pointY(bar)];
      if (Number.isNaN(y)) continue;
      dots.moveTo(x + size, y);
      dots.arc(x, y, size, 0, 2 * Math.PI);
      if (spacing >= 20) pen.fillText(String(first + number + 1), x + 5, y + 9);
    }
  });
  pen.fill(dots);
}

// Points of operations that are in rounds, not in an order.
function drawLoosePoints() {
  if (orders.length) return;
  pen.fillStyle = colours.order;
  const dots = new Path2D();
  const perPixel = 1 / scale();
  let last = -Infinity;
  for (const row of view.rows) {
    for (let at = firstAt(row, placeOf(GUTTER)); at < row.bars.length; at += 1) {
      const bar = row.bars[at];
      if (view.start[bar] > view.to) break;
      const x = xOf(view.point[bar]);
      if (Number.isNaN(x) || Math.abs(view.point[bar] - last) < perPixel) continue;
      last = view.point[bar];
      dots.moveTo(x + 3.4, row.y + BAR);
      dots.arc(x, row.y + BAR, 3.4, 0, 2 * Math.PI);
    }
    last = -Infinity;
  }
  pen.fill(dots);
}

// --- selection ---

function gapColour(gap) {
  return { no: colours.bad, but: colours.warn, yes: colours.good }[gapKind(gap)[0]];
}

// Tints the chosen instant, behind the bars.
function drawInstant() {
  const { bar } = selection;
  const gap = bar < 0 || view.rowOf[bar] < 0 ? undefined : gapsOf(bar)[selection.gap];
  if (!gap) return;
  const [from, to] = gapRange(bar, gap);
  pen.globalAlpha = 0.1;
  pen.fillStyle = gapColour(gap);
  pen.fillRect(xOf(from), view.scroll, xOf(to) - xOf(from), view.height);
  pen.globalAlpha = 1;
}

function drawSelection() {
  if (selection.found) drawFound();
  const { bar } = selection;
  const row = bar < 0 ? null : view.rows[view.rowOf[bar]];
  if (!row) return;
  const x = xOf(view.start[bar]);
  const width = Math.max(xOf(view.end[bar]) - x, 3);
  pen.strokeStyle = colours.focus;
  pen.lineWidth = 2;
  pen.beginPath();
  pen.roundRect(x - 1.5, row.y - 1.5, width + 3, BAR + 3, 5);
  pen.stroke();
  gapsOf(bar).forEach((gap, number) => drawGap(bar, gap, row.y, number === selection.gap));
  pen.lineWidth = 1;
}

function drawGap(bar, gap, y, isChosen) {
  const [from, to] = gapRange(bar, gap);
  const isOwn = gap.answer === ANSWER.itsPlace;
  const colour = gapColour(gap);
  const x = xOf(isOwn ? view.point[bar] : (from + to) / 2);
  const [kind] = gapKind(gap);
  if (isChosen) {
    pen.strokeStyle = colour;
    pen.lineWidth = 1.2;
    pen.setLineDash([3, 3]);
    pen.beginPath();
    pen.moveTo(x, view.scroll);
    pen.lineTo(x, view.scroll + view.height);
    pen.stroke();
    pen.setLineDash([]);
  }
  pen.strokeStyle = colour;
  pen.lineWidth = 1.8;
  pen.beginPath();
  const [size, top] = [isChosen ? 4 : 3, y - 5];
  if (kind === "no") {
    pen.moveTo(x - size, top - size);
    pen.lineTo(x + size, top + size);
    pen.moveTo(x + size, top - size);
    pen.lineTo(x - size, top + size);
    pen.stroke();
  } else {
    pen.fillStyle = kind === "yes" ? colour : colours.sheet;
    pen.arc(x, top, size, 0, 2 * Math.PI);
    pen.fill();
    pen.stroke();
  }
}

function drawFound() {
  pen.fillStyle = colours.warn;
  const perPixel = 1 / scale();
  const [from, to] = [placeOf(GUTTER), view.to];
  let last = -Infinity;
  for (const bar of selection.found) {
    const row = view.rows[view.rowOf[bar]];
    if (!row || view.end[bar] < from || view.start[bar] > to) continue;
    if (view.start[bar] < last && view.rows.length === 1) continue;
    last = view.start[bar] + perPixel;
    const x = Math.max(xOf(view.start[bar]), GUTTER);
    pen.fillRect(x, row.y + BAR + 2, Math.max(2, Math.min(xOf(view.end[bar]), view.width) - x), 2.5);
  }
}

// --- overview ---

function drawOverview() {
  const ink = overview.getContext("2d");
  const { width } = view;
  const length = axisLength();
  const x = (place) => GUTTER + (Math.min(Math.max(place, 0), length) / length) * (width - GUTTER - 12);
  ink.fillStyle = colours.band;
  ink.fillRect(0, 0, width, 14);
  ink.fillStyle = colours.rule;
  ink.fillRect(GUTTER, 4, width - GUTTER - 12, 6);
  ink.fillStyle = colours.focus;
  ink.globalAlpha = 0.3;
  ink.fillRect(x(view.from), 2, Math.max(4, x(view.to) - x(view.from)), 10);
  ink.globalAlpha = 1;
  ink.fillStyle = colours.bad;
  for (const bar of page.core) {
    const isFailing = bar === page.failing;
    ink.globalAlpha = isFailing ? 1 : 0.5;
    ink.fillRect(x(view.start[bar]) - 1, isFailing ? 0 : 4, isFailing ? 3 : 2, isFailing ? 14 : 6);
  }
  ink.globalAlpha = 1;
  if (selection.bar >= 0) {
    ink.fillStyle = colours.focus;
    ink.fillRect(x(view.start[selection.bar]) - 1, 0, 2, 14);
  }
}
