// The report's data, and what can be told from it without drawing anything.

const page = JSON.parse(document.getElementById("data").textContent);
const { texts, lanes, marks, orders, words } = page;
const bars = page.bars;
const count = bars.lane.length;
const hasTimes = page.clock !== "abstract";
const [OK, FAILED, UNSEEN] = [0, 1, 2];
const OUTCOMES = ["ok", "failed: it had no effect", "unknown: it may have had its effect"];
const ANSWER = { illegal: 0, nextBreaks: 1, laterBreaks: 2, staysLegal: 3, legalSoFar: 4, itsPlace: 5, missed: 6 };

const isCore = new Uint8Array(count);
for (const bar of page.core) isCore[bar] = 1;
const isContext = new Uint8Array(count);
for (const bar of page.context) isContext[bar] = 1;
const hasCore = page.core.length > 0;

const labelOf = (bar) => texts[bars.label[bar]];
const isOpen = (bar) => bars.outcome[bar] === UNSEEN || bars.end[bar] < 0;

function plural(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

// The groups of the order that `bar` belongs to, without `bar`.
function groupsWithout(bar) {
  const groups = orders[bars.order[bar]].groups;
  const own = bars.rank[bar];
  if (own < 0) return groups;
  const rest = groups[own].filter((other) => other !== bar);
  return [...groups.slice(0, own), ...(rest.length ? [rest] : []), ...groups.slice(own + 1)];
}

// Fills placeholders in one pass, as texts of the history may contain placeholders themselves.
function filled(template, parts) {
  return template.replace(/\{(\w+)\}/g, (whole, name) => (name in parts ? parts[name] : whole));
}

// The gaps of an order that were judged for an operation: where they are and what is to be said.
const gapsOf = (() => {
  let known = -1;
  let gaps = [];
  return (bar) => {
    if (bar === known) return gaps;
    known = bar;
    gaps = [];
    const total = bar < 0 ? 0 : bars.gap_count[bar];
    if (!total) return gaps;
    const groups = groupsWithout(bar);
    for (let number = 0; number < total; number += 1) {
      const gap = bars.gap_first[bar] + number;
      const at = 4 * (bars.gap_at[bar] + number);
      const [state, answer, about, reason] = page.answers.slice(at, at + 4);
      gaps.push({
        before: gap < groups.length ? groups[gap][0] : -1,
        after: gap > 0 ? groups[gap - 1][0] : -1,
        state: texts[state],
        answer,
        said: filled(words[answer], {
          operation: about < 0 ? "" : labelOf(about),
          outcome: about < 0 ? "" : texts[bars.outcome_text[about]],
          reason: texts[reason].replace(/\.$/, "") || words.no_reason,
        }),
      });
    }
    return gaps;
  };
})();

function gapPlace(gap) {
  if (gap.before >= 0) return `before #${bars.rank[gap.before] + 1} ${labelOf(gap.before)}`;
  return gap.after >= 0 ? `after #${bars.rank[gap.after] + 1} ${labelOf(gap.after)}` : "at the beginning";
}

// What kind of answer it is: [class, sign, word].
function gapKind(gap) {
  switch (gap.answer) {
    case ANSWER.illegal:
    case ANSWER.missed:
      return ["no", "✗", "not here"];
    case ANSWER.nextBreaks:
    case ANSWER.laterBreaks:
      return ["but", "~", "legal, but"];
    default:
      return ["yes", "✓", "legal"];
  }
}
