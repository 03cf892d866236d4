/** The few statistics that the page shows. */

/**
 * Kendall's τ-b of two aligned lists; NaN if one of them is constant.
 * @param {number[]} a @param {number[]} b
 */
export function tau(a, b) {
  let sum = 0, ofA = 0, ofB = 0;
  for (let i = 0; i < a.length; i++) {
    for (let j = 0; j < i; j++) {
      const x = Math.sign(a[i] - a[j]), y = Math.sign(b[i] - b[j]);
      sum += x * y;
      ofA += x * x;
      ofB += y * y;
    }
  }
  return sum / Math.sqrt(ofA * ofB);
}

/** Ranks, 1 = highest; equal values share the best one. @param {number[]} values */
export const ranks = (values) => {
  const sorted = [...values].sort((x, y) => y - x);
  return values.map((value) => sorted.indexOf(value) + 1);
};

/**
 * A function from values to places between 0 and 1, with a margin at both sides.
 * @param {number[]} values
 * @param {number} [margin]
 */
export function placer(values, margin = 0.03) {
  const known = values.filter(Number.isFinite);
  const low = Math.min(...known), high = Math.max(...known);
  const width = high - low;
  /** @param {number} value */
  return (value) => (width > 0 ? margin + ((value - low) / width) * (1 - 2 * margin) : 0.5);
}
