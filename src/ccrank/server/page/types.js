/**
 * The shapes of what goes over the wire and of what the page keeps. Types alone: nothing here runs.
 *
 * @typedef {{rank: number, item: string, score: number, deviation?: number, rank_low?: number, rank_high?: number}} Row
 * @typedef {{phrase: string, first: string, last?: string, name?: string, poles: [string, string], comparative: string,
 *   source: string, certain: boolean, warning?: string | null,
 *   alternatives: {first: string, poles: [string, string]}[]}} Understood
 * @typedef {{
 *   criterion: {name: string, category?: string}, model: string, method: string, directed: boolean, items: Row[],
 *   confidence: {level: "low" | "medium" | "high", probability: number} | null, warnings: string[],
 *   consistency: Record<string, number | null>, understood?: Understood, query?: string,
 *   details?: {poles?: [string, string], signals?: Record<string, Record<string, number>>, labels?: Record<string, any>}
 * }} Ranking
 * @typedef {{
 *   items: string[], by?: string, query?: string, poles?: [string, string], category?: string, context?: string,
 *   method?: string, model?: string, labels?: Labels, stream?: boolean
 * }} RankRequest
 * @typedef {{question: string, items: [string, string]} | null} Question
 * @typedef {{names: string[], rows: string[][], column: number, file: string}} Table
 * @typedef {{kind: "move", item: string, above: string, below: string}} Move the item's neighbours, or none
 * @typedef {{kind: "pair" | "equal" | "unknown", items: [string, string]}} Said an answer; the higher item of a pair first
 * @typedef {Move | Said} Label
 * @typedef {{orders?: string[][], equal?: string[][], unknown?: string[][], moves?: string[][]}} Labels
 * @typedef {{item: string, score: number | null, low?: number, high?: number, row?: Row}} Placed
 * @typedef {{name: string, summary: string, family: string}} Method
 */
export {};
