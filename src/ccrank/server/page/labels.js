/** What the user says about items: answers to questions, and items that were moved. */

/** @typedef {import("./types.js").Label} Label */
/** @typedef {import("./types.js").Move} Move */

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
 * Labels with one more, in place of what was said before about the same; what the user now sees otherwise is dropped.
 * @param {Label[]} labels
 * @param {Label} added
 * @param {string[]} [order] after a move
 * @returns {Label[]}
 */
export function withLabel(labels, added, order = []) {
  const moved = added.kind === "move";
  /** @type {(high: string, low: string) => boolean} */
  const holds = moved
    ? (high, low) => order.indexOf(high) < order.indexOf(low)
    : (high, low) => !(added.kind === "pair" && added.items[0] === low && added.items[1] === high);
  /** @type {(one: Label) => Label[]} */
  const stillSaid = (one) => {
    if (one.kind === "move") {
      if (moved && one.item === added.item) return [];
      const above = one.above && holds(one.above, one.item) ? one.above : "";
      const below = one.below && holds(one.item, one.below) ? one.below : "";
      return above || below ? [{ ...one, above, below }] : [];
    }
    if (moved) return one.kind !== "pair" || holds(...one.items) ? [one] : [];
    return one.items.every((item) => added.items.includes(item)) ? [] : [one];
  };
  return [...labels.flatMap(stillSaid), added];
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
