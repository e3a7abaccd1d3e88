/**
 * Exports of the model view: a figure of the complete grid, and a CSV table of all heads.
 *
 * The map of a head is its attention matrix, pooled to few cells. The effect of a head is a signed
 * number that is drawn as a bar. The role of a head names what it does, as found over a corpus.
 */

import type { StackDescription } from "../../client/protocol";
import type { HeadMap, Source } from "../../client/source";
import { measureText } from "../../draw/canvas";
import { type Box, type LegendScale, namedColors, textMark } from "../../draw/figure";
import { fontOf, type Mark, sceneOf, translate } from "../../draw/marks";
import { signColor } from "../../ui/colors/color-scales";
import { headColor, type Palette, rgbOf } from "../../ui/colors/palette";
import {
  effectColors,
  effectMarks,
  type HeadEffects,
  headEffect,
  headError,
  scoreColumn,
} from "../../ui/effects/effects";
import { columnName, csvText, roundedTo, roundedUp, writtenError } from "../../ui/exports/csv";
import type { ViewFigure } from "../../ui/exports/exports";
import type { HeadGrid, HeadIndex, ScoredHead } from "../../ui/head-grid/grid";
import {
  fittedName,
  type HeadRole,
  type RoleSign,
  roleBox,
  roleMarks,
} from "../../ui/head-grid/head-roles";
import { gridMarks } from "../../ui/head-grid/marks";
import {
  aroundZero,
  plainNumber,
  type Quantity,
  quantityOf,
  signsInWords,
} from "../../ui/text/captions";
import type { Selection } from "../../ui/view/record";
import { captionLines } from "./captions";
import { BAR_GAP, BAR_HEIGHT, groupByLayer, type Layout, MIN_NAMED, ROLE_LETTER } from "./layout";
import { coveredRange, loadMaps, type MapSet, type Part, queriesOf, strongestCell } from "./maps";
import { heatMark, inkOf, lineMarks, rowMark, type Square } from "./marks";
import type { ModelState } from "./state";

interface DrawnHeads {
  grid: HeadGrid;
  layout: Layout;
  selection: Selection;
  palette: Palette;
  thumbnails: ModelState["thumbnails"];
  map: (cell: HeadIndex) => HeadMap | undefined;
  /** Background colour of the maps, or undefined if the background is transparent. */
  ground?: string | undefined;
  /** Top and bottom of the outlined query, as shares of the height of each heat map, or null. */
  outlinedRow?: [number, number] | null;
  /** Effects of the heads, which are drawn as bars below their maps. */
  effects?: HeadEffects | null;
  /** Return the role of a head over a corpus, or null if it has none. */
  roleOf?: (cell: HeadIndex) => HeadRole | null;
  roleSigns?: readonly RoleSign[];
  /** Whether the heads are ordered by role. */
  byRole?: boolean;
}

/**
 * Load the maps of all heads of a grid, including heads outside the scroll box.
 *
 * @param onProgress called with the number of loaded maps after each layer.
 * @returns a function that returns the map of a head.
 */
export async function loadAll(
  source: Source,
  grid: HeadGrid,
  set: MapSet,
  stack: StackDescription,
  onProgress: (done: number) => void,
): Promise<(cell: HeadIndex) => HeadMap | undefined> {
  const all = new Map<string, HeadMap>();
  for (const layer of groupByLayer(grid.rows.flat())) {
    const maps = await loadMaps(source, set, stack, layer);
    layer[1].forEach((head, i) => {
      all.set(`${layer[0]} ${head}`, maps[i] as HeadMap);
    });
    onProgress(all.size);
  }
  return ({ layer, head }) => all.get(`${layer} ${head}`);
}

/** Return the role or, in a gallery, the name and the score below the map of a head. */
function labelMarks(parts: DrawnHeads, cell: ScoredHead, x: number, y: number): Mark[] {
  const { grid, layout, palette } = parts;
  const below = y + layout.cell + layout.bars + 9;
  const role = parts.roleOf?.(cell) ?? null;
  const sign = parts.roleSigns?.find(({ name }) => name === role?.name);
  const letterAt = (middle: number): Mark[] =>
    sign ? roleMarks(sign, [middle, below], ROLE_LETTER) : [];
  if (grid.columns) {
    if (layout.roles === 0 || !role) return [];
    if (layout.cell < MIN_NAMED) return letterAt(x + layout.cell / 2);
    const name = fittedName(role.name, layout.cell - ROLE_LETTER - 3);
    return [
      ...letterAt(x + ROLE_LETTER / 2),
      textMark(name, x + ROLE_LETTER + 3, below, palette.muted, 9.5),
    ];
  }
  const middle = x + layout.cell / 2;
  const [name, score] = captionLines(
    cell,
    layout.caption === "words",
    parts.effects?.name === grid.score ? parts.effects : null,
    parts.byRole ? role : undefined,
  );
  const more = { align: "middle" } as const;
  const half = measureText(name, fontOf({ size: 10.5, font: "text" })) / 2;
  return [
    textMark(name, middle, below, palette.ink, 10.5, more),
    ...letterAt(middle + half + 8),
    textMark(score, middle, below + 13, palette.muted, 10.5, more),
  ];
}

/**
 * Return the legend of the colour scale of thumbnails.
 *
 * @param straight whether opacity is proportional to the weight. If false, it is proportional to
 *   the square root of the weight.
 */
export function thumbnailScale(
  straight: boolean,
  maximum: number,
  quantity: Quantity,
  palette: Palette,
): LegendScale {
  const { name, signed } = quantity;
  const end = plainNumber(Number(maximum.toPrecision(2)));
  const note = `thumbnails: ${straight ? `opacity = ${name}` : `ink = √${name}`}`;
  return {
    color: (position) => {
      const value = signed ? 2 * position - 1 : position;
      const size = Math.abs(value);
      const color = signed ? signColor(value, palette) : palette.neutral;
      return [...rgbOf(color), 255 * (straight ? size : inkOf(size, 1))];
    },
    ...(signed
      ? { labels: aroundZero(end), quantity: signsInWords(quantity, note) }
      : { labels: ["0", note, end] }),
  };
}

/** Return the legend of a figure: the colours of the effects and the letters of the roles. */
function legendBox(
  effects: HeadEffects | null | undefined,
  signs: readonly RoleSign[],
  palette: Palette,
  width: number,
): Box {
  const effectBox = effects && namedColors(effectColors(effects, palette), width, palette.ink);
  const top = effectBox ? effectBox.height + 6 : 0;
  if (signs.length === 0) return { width, height: top, marks: effectBox?.marks ?? [] };
  const box = roleBox(signs, palette, width);
  return {
    width,
    height: top + box.height,
    marks: [...(effectBox?.marks ?? []), ...translate(box.marks, 0, top)],
  };
}

/** Return the parts of the figure of the complete grid. Each chosen head has a coloured frame. */
export function figureParts(parts: DrawnHeads): Omit<ViewFigure, "captions"> {
  const { grid, layout, selection, palette, thumbnails } = parts;
  const back: Mark[] = [];
  const lines: [HeadMap, Square][] = [];
  const quantity = quantityOf(selection.stack);
  const ink = quantity.signed ? palette : palette.neutral;
  let maximum = selection.stack.signed ? selection.stack.maximum : 1;
  const { effects } = parts;
  const side = layout.cell;
  const front = gridMarks(grid, layout, palette, (cell, x, y) => {
    const marks = labelMarks(parts, cell, x, y);
    if (effects) {
      const box = { x, y: y + side + BAR_GAP, width: side, height: BAR_HEIGHT };
      const effect = headEffect(effects, selection.stack, cell);
      const error = headError(effects, selection.stack, cell);
      marks.push(...effectMarks(box, effect, effects.end, palette, error));
    }
    const map = parts.map(cell);
    if (!map) return marks;
    const square = { x, y, side };
    if (thumbnails === "lines") lines.push([map, square]);
    else {
      maximum = map.maximum;
      back.push({ ...heatMark(map, square, ink), ground: parts.ground });
      if (parts.outlinedRow) marks.push(rowMark(square, parts.outlinedRow, palette));
    }
    const chosen = selection.layer === cell.layer ? selection.chosen.indexOf(cell.head) : -1;
    marks.push({
      kind: "rect",
      ...{ x: x - 0.5, y: y - 0.5, width: side + 1, height: side + 1 },
      ...(chosen < 0
        ? { stroke: palette.rule }
        : { stroke: headColor(palette, chosen, selection.chosen.length), strokeWidth: 2 }),
    });
    return marks;
  });
  if (thumbnails === "lines") back.push(...lineMarks(lines, ink));
  const straight = thumbnails === "lines";
  const signs = parts.roleSigns ?? [];
  return {
    picture: sceneOf(layout, back, front),
    scales: [thumbnailScale(straight, maximum, quantity, palette)],
    ...((effects || signs.length > 0) && {
      legend: (width: number) => legendBox(effects, signs, palette, width),
    }),
  };
}

const COLUMNS = ["query", "query_token", "key", "key_token", "largest_error"];

/** Number of concurrent requests of `headsCsv`. */
const AT_ONCE = 4;

interface Strongest {
  query: number;
  key: number;
  weight: number;
  error: number;
}

/**
 * Return the strongest weight of a head, or null if all weights are 0. If the map is pooled,
 * request the weights of its strongest cell to find the query and the key.
 */
async function findStrongest(
  source: Source,
  selection: Selection,
  part: Part,
  cell: HeadIndex,
  map: HeadMap | undefined,
): Promise<Strongest | null> {
  const best = map && strongestCell(map);
  if (!best) return null;
  const rows = queriesOf(best.row, map, part.rows);
  const columns = coveredRange(best.column, map.columns, part.columns);
  const only = rows[1] - rows[0] === 1 && columns[1] - columns[0] === 1;
  if (only) {
    const error = map.largest ? 0 : map.error;
    return { query: rows[0], key: columns[0], weight: best.weight, error };
  }
  const block = await source.block({
    stack: selection.stack.name,
    layer: cell.layer,
    heads: [cell.head],
    rows,
    columns,
  });
  const values = block.matrices[0] as Float32Array;
  const exact = strongestCell({ ...block, values, largest: undefined });
  if (!exact) return null;
  return {
    query: rows[0] + exact.row,
    key: columns[0] + exact.column,
    weight: exact.weight,
    error: block.error,
  };
}

/**
 * Return the names of all columns of the CSV table.
 *
 * @param columns names of the columns after those of the head and its scores.
 */
function columnNames(
  grid: HeadGrid,
  effects: HeadEffects | null,
  columns: readonly string[],
): string[] {
  const score = grid.score === null ? [] : [scoreColumn(grid.score)];
  const effect = effects && effects.name !== grid.score ? [scoreColumn(effects.name)] : [];
  const error = effects?.errors ? [scoreColumn(effects.name, "score error")] : [];
  const note = effects?.note ? ["score_measure"] : [];
  return ["stack", "layer", "head", ...score, ...effect, ...error, ...note, ...columns];
}

/** Return the values of a row in the columns of the head and its scores. */
function headCells(
  grid: HeadGrid,
  effects: HeadEffects | null,
  { stack }: Selection,
  cell: ScoredHead,
): (string | number | null)[] {
  const score = grid.score === null ? [] : [cell.score];
  const effect = effects && effects.name !== grid.score ? [headEffect(effects, stack, cell)] : [];
  const error = effects?.errors ? [headError(effects, stack, cell)] : [];
  const note = effects?.note ? [effects.note] : [];
  return [grid.stack, cell.layer, cell.head, ...score, ...effect, ...error, ...note];
}

/** Return the largest error of a map's weights, or 0 if its largest weight is exact. */
function errorOf(map: HeadMap | undefined): number {
  return !map || map.largest ? 0 : map.error;
}

/** Return a CSV table with one row per displayed head: its scores and its strongest weight. */
export async function headsCsv(
  source: Source,
  grid: HeadGrid,
  selection: Selection,
  part: Part,
  map: (cell: HeadIndex) => HeadMap | undefined,
  effects: HeadEffects | null = null,
): Promise<string> {
  const cells = grid.rows.flat().filter((cell) => cell !== null);
  const nameFor = (cell: ScoredHead) => headCells(grid, effects, selection, cell);
  const results: (Strongest | null)[] = new Array(cells.length).fill(null);
  let next = 0;
  const work = async (): Promise<void> => {
    while (next < cells.length) {
      const index = next++;
      const cell = cells[index] as HeadIndex;
      results[index] = await findStrongest(source, selection, part, cell, map(cell));
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  const rows = cells.map((cell, index) => {
    const best = results[index] ?? null;
    return [
      ...nameFor(cell),
      best ? roundedTo(best.weight, best.error) : 0,
      best?.query ?? null,
      best ? (selection.queries.text[best.query] ?? "") : null,
      best?.key ?? null,
      best ? (selection.keys.text[best.key] ?? "") : null,
      // If all weights of a map are 0, small weights may have been rounded to 0. In this case,
      // write the error of the map.
      best ? writtenError(best.error) : roundedUp(errorOf(map(cell))),
    ];
  });
  return csvText(
    columnNames(grid, effects, [columnName(selection.stack, "strongest"), ...COLUMNS]),
    rows,
  );
}
