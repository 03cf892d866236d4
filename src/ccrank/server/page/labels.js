/** What the user says about items: answers to questions, and items that were moved. */

/** @typedef {import("./types.js").Label} Label */
/** @typedef {import("./types.js").Move} Move */
/** @typedef {import("./types.js").Said} Said */

/**
 * What a move says: the item is between its neighbours in the order that the user saw, and no more.
 * @param {string} item
 * @param {string[]} order the order after the move
 * @returns {Move}
 */
export function labelOfMove(item, order) {
  const at = order.indexOf(item);
  return { kind: "move", item, above: order[at - 1] ?? "", below: order[at + 1] ?? "" };
}

/**
 * Labels with one more, in place of what was said before about the same. What a move contradicts was said about another
 * item too: that item keeps its place in the order that the user now sees, since it would move without evidence.
 * @param {Label[]} labels
 * @param {Label} added
 * @param {string[]} [order] after a move
 * @returns {Label[]}
 */
export function withLabel(labels, added, order = []) {
  if (added.kind !== "move") return [...labels.flatMap((one) => withoutPair(one, added.items)), added];
  /** @type {(label: Label) => boolean} */
  const holds = (label) => pairsOf(label).every(([high, low]) => order.indexOf(high) < order.indexOf(low));
  const lost = labels.filter((one) => !holds(one));
  // Without an answer the order that all moves started from is another one, so that each has to say its place again.
  const again = lost.some((one) => one.kind === "pair") ? labels.filter((one) => one.kind === "move" || lost.includes(one)) : lost;
  const kept = labels.filter((one) => !(one.kind === "move" && one.item === added.item) && !again.includes(one));
  const others = again.flatMap((one) => (one.kind === "move" ? one.item : /** @type {Said} */ (one).items));
  const moves = [...new Set(others)].filter((item) => item !== added.item).map((item) => labelOfMove(item, order));
  // The server takes the moves in turn, and puts each item above the lower one of its neighbours: the lowest comes first.
  return [...kept, ...[...moves, added].sort((one, other) => order.indexOf(other.item) - order.indexOf(one.item))];
}

/** What a label says, higher items first. @param {Label} label @returns {[string, string][]} */
function pairsOf(label) {
  if (label.kind === "pair") return [label.items];
  if (label.kind !== "move") return [];
  const { item, above, below } = label;
  return [...(above ? [/** @type {[string, string]} */ ([above, item])] : []), ...(below ? [/** @type {[string, string]} */ ([item, below])] : [])];
}

/** What is left of a label after another answer about two items. @param {Label} label @param {[string, string]} items @returns {Label[]} */
function withoutPair(label, items) {
  if (label.kind !== "move") return label.items.every((item) => items.includes(item)) ? [] : [label];
  const has = (/** @type {string} */ other) => items.includes(label.item) && items.includes(other);
  const above = has(label.above) ? "" : label.above, below = has(label.below) ? "" : label.below;
  return above || below ? [{ ...label, above, below }] : [];
}

/** Labels as the server takes them. @param {Label[]} labels */
export function onTheWire(labels) {
  /** @type {Required<import("./types.js").Labels>} */
  const found = { orders: [], equal: [], unknown: [], moves: [] };
  for (const one of labels) {
    if (one.kind === "pair") found.orders.push(one.items);
    else if (one.kind !== "move") found[one.kind].push(one.items);
    else {
      if (one.above) found.moves.push([one.item, "below", one.above]);
      if (one.below) found.moves.push([one.item, "above", one.below]);
    }
  }
  return Object.fromEntries(Object.entries(found).filter(([, list]) => list.length));
}
