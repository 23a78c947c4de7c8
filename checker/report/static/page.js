// Controls: mouse, keys, search, filters, theme.

const timeline = element("timeline");

// --- selecting ---

function select(bar, { quiet = false, gap } = {}) {
  const isNew = bar !== selection.bar;
  selection.bar = bar;
  if (isNew) {
    const gaps = gapsOf(bar);
    const own = gaps.findIndex((one) => one.answer === ANSWER.itsPlace);
    selection.gap = own >= 0 ? own : gaps.length - 1;
    fillDetails();
  }
  if (gap !== undefined) selection.gap = gap;
  markGap();
  if (bar >= 0 && !quiet) sayOperation(bar);
  redraw();
}

function selectGap(number) {
  const gaps = gapsOf(selection.bar);
  if (!gaps.length) return;
  selection.gap = Math.min(Math.max(number, 0), gaps.length - 1);
  markGap();
  sayGap(gaps[selection.gap]);
  redraw();
}

function go(bar) {
  if (bar < 0 || view.rowOf[bar] < 0) return;
  reveal(bar);
  select(bar);
}

function gapNumberAt(bar, place) {
  const gaps = gapsOf(bar);
  let [best, distance] = [-1, Infinity];
  gaps.forEach((gap, number) => {
    const [from, to] = gapRange(bar, gap);
    const away = place < from ? from - place : place > to ? place - to : 0;
    if (away < distance) [best, distance] = [number, away];
  });
  return best;
}

function shownBars() {
  const list = [];
  for (let bar = 0; bar < count; bar += 1) if (view.rowOf[bar] >= 0) list.push(bar);
  return list;
}

function neighbour(step) {
  const { bar } = selection;
  if (bar < 0) return firstVisible();
  for (let other = bar + step; other >= 0 && other < count; other += step) {
    if (bars.lane[other] === bars.lane[bar] && view.rowOf[other] >= 0) return other;
  }
  return -1;
}

function firstVisible() {
  if (page.failing >= 0 && view.rowOf[page.failing] >= 0) return page.failing;
  const list = shownBars();
  return list.find((bar) => view.end[bar] >= view.from) ?? -1;
}

// The operation of the next lane that is nearest in time.
function acrossLanes(step) {
  const { bar } = selection;
  if (bar < 0) return firstVisible();
  const own = bars.lane[bar];
  const middle = (view.start[bar] + Math.max(view.start[bar], view.end[bar])) / 2;
  let [best, lane, distance] = [-1, -1, Infinity];
  for (const row of view.rows) {
    const theirs = bars.lane[row.bars[0]];
    if (step > 0 ? theirs <= own : theirs >= own) continue;
    if (lane >= 0 && theirs !== lane && (step > 0 ? theirs > lane : theirs < lane)) continue;
    if (theirs !== lane) [best, lane, distance] = [-1, theirs, Infinity];
    const at = firstAt(row, middle);
    for (const near of [at - 1, at, at + 1]) {
      const other = row.bars[near];
      if (other === undefined) continue;
      const away = Math.max(view.start[other] - middle, middle - view.end[other], 0);
      if (away < distance) [best, distance] = [other, away];
    }
  }
  return best;
}

// --- what is shown ---

const CORE_SHOWN_MAX = 10;
const CORE_EVENTS_MAX = 100;

function rearranged() {
  arrange();
  resize();
  if (selection.bar >= 0 && view.rowOf[selection.bar] < 0) select(-1);
  search(element("search").value);
}

function toAnomaly() {
  const important = page.core.filter((bar) => view.rowOf[bar] >= 0);
  if (!important.length) return;
  const last = page.failing >= 0 ? page.failing : important[important.length - 1];
  const distance = (bar) => Math.abs(view.start[bar] - view.start[last]);
  important.sort((one, other) => distance(one) - distance(other));
  // Those that are too far away to be read beside the last one are in the overview.
  const near = important.slice(0, CORE_SHOWN_MAX);
  while (view.axis === "order" && near.length > 1 && distance(near[near.length - 1]) > CORE_EVENTS_MAX) near.pop();
  showBars(near);
  if (near.length === 1 && view.axis === "order") show(view.from - 12, view.to + 6);
  go(last);
}

function setCore(isOn) {
  element("core").checked = isOn;
  view.onlyCore = isOn;
  rearranged();
  showBars(page.core);
  redraw();
}

function setAxis(axis) {
  const kept = shownBars().filter((bar) => view.end[bar] >= view.from && view.start[bar] <= view.to);
  view.axis = axis;
  element("axis").value = axis;
  rearranged();
  if (kept.length && kept.length < count / 2) showBars(kept);
  else showAll();
  redraw();
}

function setKey(key) {
  view.key = key;
  rearranged();
  redraw();
}

const isDark = window.matchMedia("(prefers-color-scheme: dark)");

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  readColours();
  drawLegend();
  redraw();
}

function otherTheme() {
  setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
}

// --- search ---

function search(text) {
  const wanted = text.trim().toLowerCase();
  element("found-box").hidden = !wanted;
  if (!wanted) {
    selection.found = null;
  } else {
    const isMatch = texts.map((one) => one.toLowerCase().includes(wanted));
    selection.found = shownBars().filter((bar) => isMatch[bars.label[bar]]);
    tellFound();
  }
  redraw();
}

function tellFound() {
  const { found, bar } = selection;
  const at = found.indexOf(bar);
  const total = found.length.toLocaleString("en");
  element("found").textContent = at >= 0 ? `${(at + 1).toLocaleString("en")} of ${total}` : found.length ? `${total} found` : "none found";
}

function jump(step) {
  const { found, bar } = selection;
  if (!found || !found.length) return;
  let at = found.indexOf(bar);
  if (at >= 0) at += step;
  else {
    at = found.findIndex((other) => other > bar);
    if (step < 0) at -= 1;
    if (at === -1 && step > 0) at = 0;
  }
  go(found[(at + found.length) % found.length]);
  tellFound();
}

// --- keys ---

const KEYS = [
  ["← →", "previous, next operation of the process", { ArrowLeft: () => go(neighbour(-1)), ArrowRight: () => go(neighbour(1)) }],
  ["↑ ↓", "the process above, below", { ArrowUp: () => go(acrossLanes(-1)), ArrowDown: () => go(acrossLanes(1)) }],
  ["Shift ← →  or  , .", "previous, next instant of the operation", { ",": () => selectGap(selection.gap - 1), ".": () => selectGap(selection.gap + 1) }],
  ["Home End", "first, last operation", { Home: () => go(shownBars()[0] ?? -1), End: () => go(shownBars().pop() ?? -1) }],
  ["+ − 0", "zoom in, zoom out, everything", { "+": () => zoomed(0.6), "=": () => zoomed(0.6), "-": () => zoomed(1 / 0.6), 0: () => { showAll(); redraw(); } }],
  ["a d", "move left, right", { a: () => panned(-0.25), d: () => panned(0.25) }],
  ["f", "the anomaly", { f: toAnomaly }],
  ["c", "only the core", { c: () => hasCore && setCore(!view.onlyCore) }],
  ["/", "search; Enter and Shift Enter jump", { "/": () => element("search").focus() }],
  ["n N", "next, previous match", { n: () => jump(1), N: () => jump(-1) }],
  ["t", "light or dark", { t: otherTheme }],
  ["?", "this list", { "?": () => element("help").showModal() }],
  ["Escape", "close, deselect", { Escape: () => select(-1) }],
];

const ACTIONS = Object.assign({}, ...KEYS.map(([, , actions]) => actions));

function zoomed(factor) {
  const { bar } = selection;
  const x = bar >= 0 ? xOf((view.start[bar] + Math.max(view.start[bar], view.end[bar])) / 2) : undefined;
  zoom(factor, x !== undefined && x > GUTTER && x < view.width ? x : undefined);
  redraw();
}

function panned(part) {
  const by = (view.to - view.from) * part;
  show(view.from + by, view.to + by);
  redraw();
}

function onKey(event) {
  const { target, key } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || element("help").open) return;
  if (target === element("search")) {
    if (key === "Enter") {
      jump(event.shiftKey ? -1 : 1);
      event.preventDefault();
    } else if (key === "Escape") {
      target.value = "";
      search("");
      timeline.focus();
    }
    return;
  }
  const isArrow = key.startsWith("Arrow") || key === "Home" || key === "End";
  if (target.tagName === "SELECT" || (isArrow && target !== timeline && target !== document.body)) return;
  if (event.shiftKey && (key === "ArrowLeft" || key === "ArrowRight")) {
    selectGap(selection.gap + (key === "ArrowLeft" ? -1 : 1));
  } else if (key in ACTIONS) {
    ACTIONS[key]();
  } else {
    return;
  }
  event.preventDefault();
}

// --- mouse ---

function localPlace(event) {
  const box = canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

function onWheel(event) {
  const [x] = localPlace(event);
  const unit = event.deltaMode === 1 ? 16 : 1;
  const sideways = event.shiftKey ? event.deltaX || event.deltaY : event.deltaX;
  if (event.ctrlKey || event.metaKey) {
    zoom(Math.exp(event.deltaY * unit * 0.002), Math.max(x, GUTTER));
  } else if (Math.abs(sideways) > Math.abs(event.shiftKey ? 0 : event.deltaY)) {
    const by = (sideways * unit) / scale();
    show(view.from + by, view.to + by);
  } else {
    const before = view.scroll;
    scrollTo(view.scroll + event.deltaY * unit);
    if (view.scroll === before) return;
  }
  event.preventDefault();
  redraw();
}

function onPress(event) {
  if (event.button !== 0) return;
  const [startX, startY] = localPlace(event);
  const [from, to, scroll] = [view.from, view.to, view.scroll];
  let isDrag = false;
  canvas.setPointerCapture(event.pointerId);
  const move = (moved) => {
    const [x, y] = localPlace(moved);
    if (!isDrag && Math.hypot(x - startX, y - startY) < 4) return;
    isDrag = true;
    canvas.classList.add("grabbing");
    const by = (startX - x) / scale();
    show(from + by, to + by);
    if (moved.pointerType === "mouse") scrollTo(scroll + startY - y);
    redraw();
  };
  const end = () => {
    canvas.removeEventListener("pointermove", move);
    canvas.removeEventListener("pointerup", end);
    canvas.removeEventListener("pointercancel", end);
    canvas.classList.remove("grabbing");
    if (!isDrag) click(startX, startY);
  };
  canvas.addEventListener("pointermove", move);
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
}

function click(x, y) {
  const bar = barAt(x, y);
  if (bar < 0) {
    select(-1);
    return;
  }
  const number = gapNumberAt(bar, placeOf(x));
  select(bar, { gap: number });
  if (number >= 0) say(`${labelOf(bar)}. ${element("live").textContent}`);
}

function onHover(event) {
  const [x, y] = localPlace(event);
  const bar = event.buttons ? -1 : barAt(x, y);
  canvas.style.cursor = bar >= 0 ? "pointer" : "";
  canvas.title = bar >= 0 ? labelOf(bar) : "";
}

function onOverview(event) {
  if (!(event.buttons & 1)) return;
  const place = ((event.clientX - overview.getBoundingClientRect().left - GUTTER) / (view.width - GUTTER - 12)) * axisLength();
  const span = view.to - view.from;
  show(place - span / 2, place + span / 2);
  redraw();
}

// --- beginning ---

function prepare() {
  fillStory();
  fillLegend();
  for (const [keys, meaning] of KEYS) {
    const row = added(element("keys"), "tr");
    added(row, "td", keys);
    added(row, "td", meaning);
  }
  if (page.keys.length > 1) {
    element("object-box").hidden = false;
    added(element("object"), "option", "all").value = "-1";
    page.keys.forEach((key, number) => {
      added(element("object"), "option", key).value = String(number);
    });
  }
  element("core-box").hidden = !hasCore;
  element("to-failure").hidden = !hasCore;
  element("axis-box").hidden = !hasTimes;
}

function listen() {
  document.addEventListener("keydown", onKey);
  canvas.addEventListener("wheel", onWheel, { passive: false });
  canvas.addEventListener("pointerdown", onPress);
  canvas.addEventListener("pointermove", onHover);
  overview.addEventListener("pointerdown", onOverview);
  overview.addEventListener("pointermove", onOverview);
  element("object").addEventListener("change", (event) => setKey(Number(event.target.value)));
  element("core").addEventListener("change", (event) => setCore(event.target.checked));
  element("axis").addEventListener("change", (event) => setAxis(event.target.value));
  element("search").addEventListener("input", (event) => search(event.target.value));
  element("search-on").addEventListener("click", () => jump(1));
  element("search-back").addEventListener("click", () => jump(-1));
  element("zoom-in").addEventListener("click", () => zoomed(0.6));
  element("zoom-out").addEventListener("click", () => zoomed(1 / 0.6));
  element("zoom-all").addEventListener("click", () => { showAll(); redraw(); });
  element("to-failure").addEventListener("click", toAnomaly);
  element("theme").addEventListener("click", otherTheme);
  element("help-button").addEventListener("click", () => element("help").showModal());
  isDark.addEventListener("change", (event) => setTheme(event.matches ? "dark" : "light"));
  const resized = () => {
    resize();
    redraw();
  };
  window.addEventListener("resize", resized);
  new ResizeObserver(() => timeline.clientWidth !== view.width && resized()).observe(timeline);
}

function begin() {
  prepare();
  document.documentElement.dataset.theme = isDark.matches ? "dark" : "light";
  readColours();
  drawLegend();
  arrange();
  resize();
  if (hasCore) {
    toAnomaly();
  } else if (count > 150) {
    const first = Array.from({ length: 40 }, (_, bar) => bar);
    showBars(first);
  } else {
    showAll();
  }
  listen();
  draw();
}

begin();
