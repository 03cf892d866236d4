/** What the user says about items: answers to questions, and items that were moved. */

/** @typedef {import("./types.js").Label} Label */

/** A move says that an item is above or below those that it passed; more of them than this add nothing. */
const MOST_PASSED = 6;

/**
 * The labels that a move implies: the item against those it passed, the nearest to its new place first, and against its
 * new neighbour on the other side.
 * @param {string} item
 * @param {string[]} before the order before the move
 * @param {string[]} after the order after it
 * @returns {Label[]}
 */
export function labelsOfMove(item, before, after) {
  const from = before.indexOf(item), to = after.indexOf(item);
  /** @type {(higher: string, lower: string) => Label} */
  const label = (higher, lower) => ({ higher, lower, source: "move", about: item });
  if (to < from) {
    const passed = after.slice(to + 1, from + 1).slice(0, MOST_PASSED);
    const above = to > 0 ? [label(after[to - 1], item)] : [];
    return [...passed.map((lower) => label(item, lower)), ...above];
  }
  const passed = after.slice(from, to).slice(-MOST_PASSED);
  const below = to + 1 < after.length ? [label(item, after[to + 1])] : [];
  return [...passed.map((higher) => label(higher, item)), ...below];
}

/**
 * Labels with those of a new move, in place of earlier ones about the same item and of any that say the opposite.
 * @param {Label[]} labels
 * @param {Label[]} added
 * @returns {Label[]}
 */
export function withLabels(labels, added) {
  const moved = new Set(added.filter((one) => one.source === "move").map((one) => one.about));
  const pair = (/** @type {string} */ a, /** @type {string} */ b) => JSON.stringify([a, b]);
  const said = new Set(added.flatMap((one) => [pair(one.higher, one.lower), pair(one.lower, one.higher)]));
  const kept = labels.filter((one) => !(one.source === "move" && moved.has(one.about)) && !said.has(pair(one.higher, one.lower)));
  return [...kept, ...added];
}

/**
 * Labels in groups that are taken back together: a move is one group, an answer another.
 * @param {Label[]} labels
 * @returns {Label[][]}
 */
export function groups(labels) {
  /** @type {Label[][]} */
  const found = [];
  for (const label of labels) {
    const last = found.at(-1);
    if (label.source === "move" && last?.[0].source === "move" && last[0].about === label.about) last.push(label);
    else found.push([label]);
  }
  return found;
}

/** Labels as the server takes them. @param {Label[]} labels */
export const onTheWire = (labels) => (labels.length ? { orders: labels.map((one) => [one.higher, one.lower]) } : undefined);
