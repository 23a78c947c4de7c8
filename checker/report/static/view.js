// What is visible: which bars, in which rows, from where to where on which axis.

const GUTTER = 150;
const RULER = 26;
const BAR = 20;
const ROW = 44;
const PLAIN_ROW = 30;
const ABOVE = 11; // of a row's first bar, for signs of instants
const THIN = 22;

const view = {
  axis: "order",
  from: 0,
  to: 1,
  key: -1,
  onlyCore: false,
  width: 800,
  height: 300,
  scroll: 0,
  contentHeight: 0,
  start: null, // of each bar, on the axis
  end: null, // where its solid part ends
  fade: null, // where its open part ends; its end if it has none
  point: null,
  rows: [], // { y, bars: Int32Array in order of starts }
  strips: [], // { lane, y, height }
  laneY: [], // y of each lane; -1 if it is hidden
  rowOf: null, // number in `rows` of each bar; -1 if it is hidden
};

const rowHeight = bars.point.some((point) => point >= 0) ? ROW : PLAIN_ROW;

function axisLength() {
  return Math.max(view.axis === "time" ? page.length_ns : page.length, 1);
}

function isShown(bar) {
  if (view.onlyCore && !isCore[bar] && !isContext[bar]) return false;
  return view.key < 0 || bars.key[bar] === view.key || bars.key[bar] < 0;
}

// Computes places on the axis, and rows of what is shown. To be called when either changes.
function arrange() {
  const timed = view.axis === "time";
  view.start = Float64Array.from(timed ? bars.start_ns : bars.start);
  view.end = Float64Array.from(timed ? bars.end_ns : bars.end);
  view.point = Float64Array.from(timed ? bars.point_ns : bars.point);
  for (let bar = 0; bar < count; bar += 1) if (bars.point[bar] < 0) view.point[bar] = NaN;
  view.fade = new Float64Array(count);
  view.rowOf = new Int32Array(count).fill(-1);
  const byRow = lanes.map((lane) => Array.from({ length: lane.rows }, () => []));
  for (let bar = 0; bar < count; bar += 1) if (isShown(bar)) byRow[bars.lane[bar]][bars.row[bar]].push(bar);
  const isNarrowed = view.onlyCore || view.key >= 0;
  view.rows = [];
  view.strips = [];
  view.laneY = [];
  let y = 0;
  lanes.forEach((lane, number) => {
    const thick = lane.kind === "operations";
    const used = byRow[number].filter((row) => row.length);
    if (thick && isNarrowed && !used.length) {
      view.laneY.push(-1);
      return;
    }
    const height = thick ? rowHeight * Math.max(1, used.length) + 2 : THIN;
    view.laneY.push(y);
    view.strips.push({ lane: number, y, height });
    used.forEach((row, at) => addRow(row, y + ABOVE + at * rowHeight));
    y += height;
  });
  view.contentHeight = y + 6;
}

function addRow(row, y) {
  const { start, end, fade } = view;
  const last = axisLength() * 1.02 + 0.5;
  for (let at = 0; at < row.length; at += 1) {
    const bar = row[at];
    const next = at + 1 < row.length ? start[row[at + 1]] : last;
    const wasSeen = bars.end[bar] >= 0;
    if (wasSeen && end[bar] > next && next > start[bar]) end[bar] = next;
    if (!wasSeen) end[bar] = Math.min(next, start[bar] + (view.axis === "order" ? 0.6 : 0));
    fade[bar] = isOpen(bar) ? Math.max(next, end[bar]) : end[bar];
    view.rowOf[bar] = view.rows.length;
  }
  view.rows.push({ y, bars: Int32Array.from(row) });
}

const scale = () => (view.width - GUTTER - 12) / (view.to - view.from);
const xOf = (place) => GUTTER + (place - view.from) * scale();
const placeOf = (x) => view.from + (x - GUTTER) / scale();

function show(from, to) {
  const length = axisLength();
  const least = view.axis === "time" ? Math.max(length * 1e-7, 10) : 1.5;
  const most = length * 1.06 + 1;
  const span = Math.min(Math.max(to - from, least), most);
  const middle = (from + to) / 2;
  const low = -length * 0.03 - 0.5;
  view.from = Math.min(Math.max(middle - span / 2, low), Math.max(low, low + most - span));
  view.to = view.from + span;
}

function zoom(factor, x) {
  const anchor = placeOf(x === undefined ? GUTTER + (view.width - GUTTER) / 2 : x);
  show(anchor - (anchor - view.from) * factor, anchor + (view.to - anchor) * factor);
}

function showAll() {
  const length = axisLength();
  show(-length, 2 * length);
}

// Shows some bars with a margin around them.
function showBars(some) {
  let [from, to] = [Infinity, -Infinity];
  for (const bar of some) {
    from = Math.min(from, view.start[bar]);
    to = Math.max(to, view.start[bar], view.end[bar]);
  }
  if (from > to) return showAll();
  const margin = (to - from) * 0.12 + (view.axis === "order" ? 1.5 : 0);
  return show(from - margin, to + margin);
}

// Moves just so far that a bar is visible.
function reveal(bar) {
  const [start, end] = [view.start[bar], Math.max(view.end[bar], view.start[bar])];
  const span = view.to - view.from;
  if (end - start > span) {
    show(start - span * 0.1, start + span * 0.9);
  } else if (start < view.from + span * 0.02 || end > view.to - span * 0.02) {
    const middle = (start + end) / 2;
    show(middle - span / 2, middle + span / 2);
  }
  const row = view.rows[view.rowOf[bar]];
  if (!row) return;
  const room = view.height - RULER;
  if (row.y < view.scroll) scrollTo(row.y - 8);
  if (row.y + rowHeight > view.scroll + room) scrollTo(row.y + rowHeight - room + 8);
}

function scrollTo(y) {
  view.scroll = Math.max(0, Math.min(y, view.contentHeight - (view.height - RULER)));
}

// The first of a row's bars that ends, its open part included, at or after a place.
function firstAt(row, place) {
  let [low, high] = [0, row.bars.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (view.fade[row.bars[middle]] < place) low = middle + 1;
    else high = middle;
  }
  return low;
}

function barAt(x, y) {
  const inside = y - RULER + view.scroll;
  for (const row of view.rows) {
    if (inside < row.y - 3 || inside > row.y + rowHeight - 4) continue;
    const slack = 4 / scale();
    for (let at = firstAt(row, placeOf(x) - slack); at < row.bars.length; at += 1) {
      const bar = row.bars[at];
      if (view.start[bar] > placeOf(x) + slack) return -1;
      return bar;
    }
  }
  return -1;
}

// Where a gap of the order begins and ends on the axis, within the operation's interval.
function gapRange(bar, gap) {
  const end = isOpen(bar) ? view.fade[bar] : view.end[bar];
  const from = gap.after >= 0 ? Math.max(view.point[gap.after], view.start[bar]) : view.start[bar];
  const to = gap.before >= 0 ? Math.min(view.point[gap.before], end) : end;
  return [from, Math.max(from, to)];
}
