/** What the page knows now. */

/** @typedef {import("./types.js").Ranking} Ranking */

export const now = {
  /** @type {Ranking | null} */ ranking: null,
  /** @type {Ranking | null} without labels */ first: null,
  /** @type {import("./types.js").RankRequest | null} what the ranking answers */ request: null,
  /** @type {import("./types.js").Table | null} */ table: null,
  /** @type {import("./types.js").Label[]} */ labels: [],
  /** @type {import("./types.js").Question | undefined} undefined before any was asked for */ question: undefined,
  /** @type {number | null} the expected share of pairs in the right order */ rightPairs: null,
  goodEnough: false,
  /** whether more is asked although the order is good enough */ more: false,
  /** @type {AbortController | null} */ running: null,
  /** @type {AbortController | null} */ teaching: null,
  /** @type {import("./types.js").Method[]} */ methods: [],
  /** @type {Ranking | null} by a second criterion */ second: null,
  secondBy: "",
  seconds: 0,
};
