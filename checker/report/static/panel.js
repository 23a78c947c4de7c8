// What stands around the timeline: the verdict, the explanation, the selected operation.

const element = (id) => document.getElementById(id);

function added(parent, tag, text, className) {
  const child = document.createElement(tag);
  if (text !== undefined) child.textContent = text;
  if (className) child.className = className;
  parent.append(child);
  return child;
}

function fillStory() {
  element("verdict").dataset.word = page.word;
  element("sign").textContent = { valid: "✓", invalid: "✗", unknown: "?" }[page.word];
  element("headline").textContent = page.headline;
  element("title").textContent = page.title;
  element("facts").textContent = page.facts.join(" · ");
  for (const line of page.explanation) {
    added(element("explanation"), "p", line.trim(), line.startsWith(" ") ? "inner" : "");
  }
  for (const note of page.notes) added(element("notes"), "li", note);
  if (page.states.length) fillStates();
  if (page.unplaced.length) {
    const some = page.unplaced.slice(0, 5).map(labelOf).join(", ");
    const more = page.unplaced.length > 5 ? ", …" : "";
    added(element("explanation"), "p", `The longest legal order has no place for ${some}${more}.`, "soft");
  }
}

function fillStates() {
  element("states").hidden = false;
  element("story").classList.add("wide");
  element("states").querySelector("h2").textContent = `Possible just before ${labelOf(page.failing)} returned`;
  for (const state of page.states) {
    const row = added(element("state-rows"), "tr");
    added(row, "td", state.text);
    added(row, "td", state.reason || words.no_reason || "");
    added(row, "td", state.given.length ? state.given.map(labelOf).join(", ") : "–");
  }
  const more = page.state_count - page.states.length;
  if (more > 0) element("state-count").textContent = `and ${plural(more, "state")} more`;
}

// --- the selected operation ---

function moment(bar, which) {
  if (hasTimes) {
    const ns = which === "start" ? bars.start_ns[bar] : bars.end_ns[bar];
    return `${(ns / 1e9).toFixed(9).replace(/(\.\d{3}\d*?)0+$/, "$1")} s`;
  }
  return `event ${Math.floor(bars[which][bar]).toLocaleString("en")}`;
}

function interval(bar) {
  if (bars.end[bar] < 0) return `from ${moment(bar, "start")}, never ended`;
  const end = bars.outcome[bar] === UNSEEN ? `given up at ${moment(bar, "end")}` : `to ${moment(bar, "end")}`;
  return `from ${moment(bar, "start")} ${end}`;
}

function placeInOrder(bar) {
  const rank = bars.rank[bar];
  if (rank >= 0) {
    const total = orders[bars.order[bar]].groups.length;
    return `${(rank + 1).toLocaleString("en")} of ${total.toLocaleString("en")}`;
  }
  if (!orders.length) return null;
  if (bars.outcome[bar] === FAILED) return "none: it had no effect";
  if (bar === page.failing) return "none: no legal order has a place for it";
  if (bars.order[bar] < 0) return null;
  if (page.is_prefix) return "none in the longest legal order";
  return "none: it need not have had an effect";
}

function properties(bar) {
  const list = [["process", String(bars.process[bar])], ["outcome", OUTCOMES[bars.outcome[bar]]]];
  list.push(["interval", interval(bar)]);
  if (bars.key[bar] >= 0 && page.keys.length > 1) list.push(["object", page.keys[bars.key[bar]]]);
  const place = placeInOrder(bar);
  if (place) list.push(["in the order", place]);
  if (bar === page.failing) list.push(["anomaly", "no order was left at its response"]);
  else if (isCore[bar]) list.push(["anomaly", "one of the operations that cannot hold together"]);
  else if (isContext[bar]) list.push(["anomaly", "may have had an effect, and does not help"]);
  if (bars.line[bar]) list.push(["line", `${bars.line[bar].toLocaleString("en")} of ${page.title}`]);
  return list;
}

function whyIntro(bar, gaps) {
  if (gaps.length) {
    const order = page.is_prefix ? "the longest legal order" : "the order found";
    return `The instants of its interval, between the other operations of ${order}, and the state at each.`;
  }
  if (!orders.length || bars.order[bar] < 0) return "";
  if (bars.outcome[bar] === FAILED) return "It ended with a definite error, so it had no effect at any instant.";
  if (page.is_prefix && bars.start[bar] > bars.start[page.failing]) {
    return "It begins after the failing point, where no order is left.";
  }
  return "For this operation no answers were computed; see the notes below.";
}

function fillDetails() {
  const { bar } = selection;
  element("nothing").hidden = bar >= 0;
  element("selected").hidden = bar < 0;
  element("why").hidden = true;
  element("gaps").replaceChildren();
  element("properties").replaceChildren();
  if (bar < 0) return;
  element("label").textContent = labelOf(bar);
  for (const [name, value] of properties(bar)) {
    added(element("properties"), "dt", name);
    added(element("properties"), "dd", value);
  }
  const gaps = gapsOf(bar);
  const intro = whyIntro(bar, gaps);
  element("why").hidden = !intro;
  element("why-intro").textContent = intro;
  gaps.forEach((gap, number) => {
    const [kind, sign, word] = gapKind(gap);
    const item = added(element("gaps"), "li", undefined, kind);
    const button = added(item, "button");
    button.type = "button";
    added(button, "span", sign, "sign").setAttribute("aria-label", word);
    added(button, "span", gapPlace(gap), "where");
    added(button, "span", gap.state, "state");
    added(button, "span", gap.said, "said");
    button.addEventListener("click", () => selectGap(number));
  });
}

function markGap() {
  const buttons = element("gaps").querySelectorAll("button");
  buttons.forEach((button, number) => {
    if (number === selection.gap) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  });
  const list = element("gaps");
  const chosen = buttons[selection.gap];
  if (!chosen) return;
  // Not scrollIntoView, which would move the page too.
  const top = chosen.offsetTop - list.offsetTop;
  if (top < list.scrollTop) list.scrollTop = top;
  else if (top + chosen.offsetHeight > list.scrollTop + list.clientHeight) {
    list.scrollTop = top + chosen.offsetHeight - list.clientHeight;
  }
}

function say(text) {
  element("live").textContent = text;
}

function sayOperation(bar) {
  say([labelOf(bar), ...properties(bar).map(([name, value]) => `${name} ${value}`)].join(". "));
}

function sayGap(gap) {
  say(`${gapPlace(gap)}. ${filled(words.state, { state: gap.state })} ${gap.said}`);
}

// --- legend ---

function fillLegend() {
  const kinds = [["ok", "ok"]];
  if (bars.outcome.includes(FAILED)) kinds.push(["failed", "✗ failed: no effect"]);
  if (bars.outcome.includes(UNSEEN)) kinds.push(["unknown", "unknown outcome, fades: may take effect at any time"]);
  if (page.core.length) kinds.push(["core", "cannot hold together"]);
  if (page.context.length) kinds.push(["context", "may have had an effect, and does not help"]);
  if (page.failing >= 0) kinds.push(["failing", "✗ fails here"]);
  if (orders.length) kinds.push(["order", page.is_prefix ? "longest legal order" : "order found"]);
  else if (bars.point.some((point) => point >= 0)) kinds.push(["order", "instant of its round"]);
  for (const [kind, text] of kinds) {
    const item = added(element("legend"), "li");
    const swatch = added(item, "canvas");
    swatch.dataset.kind = kind;
    swatch.setAttribute("aria-hidden", "true");
    item.append(text);
  }
}

function drawLegend() {
  const ratio = window.devicePixelRatio || 1;
  for (const swatch of document.querySelectorAll("#legend canvas")) {
    swatch.width = 34 * ratio;
    swatch.height = 16 * ratio;
    const ink = swatch.getContext("2d");
    ink.scale(ratio, ratio);
    const { kind } = swatch.dataset;
    if (kind === "order") {
      ink.strokeStyle = ink.fillStyle = colours.order;
      ink.beginPath();
      ink.moveTo(4, 12);
      ink.lineTo(17, 4);
      ink.lineTo(30, 10);
      ink.stroke();
      for (const [x, y] of [[4, 12], [17, 4], [30, 10]]) {
        ink.beginPath();
        ink.arc(x, y, 3, 0, 2 * Math.PI);
        ink.fill();
      }
      continue;
    }
    const fills = { ok: colours.ok, failed: hatching, unknown: colours.unknown, core: colours["core-fill"],
      context: colours.ok, failing: colours.bad };
    const edges = { ok: "ok-edge", failed: "failed-edge", unknown: "unknown-edge", core: "core", context: "context", failing: "bad" };
    ink.fillStyle = fills[kind];
    ink.strokeStyle = colours[edges[kind]];
    ink.lineWidth = kind === "core" || kind === "context" ? 1.8 : 1;
    if (kind === "unknown" || kind === "context") ink.setLineDash([4, 3]);
    ink.beginPath();
    ink.roundRect(1.5, 1.5, 31, 13, 3.5);
    ink.fill();
    ink.stroke();
  }
}
