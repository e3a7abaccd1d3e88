/**
 * Output of marks as SVG, for papers and vector editors. Texts are text elements, not outlines. A
 * cell is one pixel of an image mark's `pixels`, such as a weight of a heat map.
 */

import { canvasOf } from "./canvas";
import { fileFonts } from "./fonts";
import { hatchLines } from "./hatch";
import {
  type CurvesMark,
  curveAt,
  DASHES,
  type ImageMark,
  type Mark,
  printableSentence,
  type RectMark,
  type Scene,
  type TextMark,
} from "./marks";

const ENTITIES: Record<string, string> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&apos;",
};

/** Escape a text for XML content and attributes. */
export function escapeXml(text: string): string {
  return printableSentence(text).replace(/[&<>"']/g, (character) => ENTITIES[character] as string);
}

/** Round a length or a position to two decimals. */
export function rounded(value: number): number {
  return Math.round(value * 100) / 100;
}

/**
 * Return an opacity as an attribute with three decimals, or undefined for 1, the default of SVG.
 */
export function opacityText(opacity = 1): string | undefined {
  return opacity === 1 ? undefined : String(Math.round(opacity * 1000) / 1000);
}

/**
 * Return an element as SVG text. `content` is SVG or text that is already escaped. Attributes are
 * escaped, and numbers are rounded. Undefined attributes are omitted.
 */
export function element(
  name: string,
  attributes: Record<string, string | number | undefined>,
  content = "",
): string {
  const written = Object.entries(attributes).map(([attribute, value]) => {
    if (value === undefined) return "";
    const text = typeof value === "number" ? rounded(value) : escapeXml(value);
    return ` ${attribute}="${text}"`;
  });
  const start = `<${name}${written.join("")}`;
  return content === "" ? `${start}/>` : `${start}>${content}</${name}>`;
}

function curveElements(mark: CurvesMark): string {
  const order = Array.from({ length: mark.count }, (_, i) => i);
  order.sort((a, b) => (mark.opacity[a] as number) - (mark.opacity[b] as number));
  const paths = order.map((i) => {
    const [x, y, ...rest] = curveAt(mark, i).map(rounded);
    return element("path", {
      d: `M${x} ${y}C${rest.join(" ")}`,
      "stroke-width": mark.width[i],
      "stroke-opacity": opacityText(Math.min(1, mark.opacity[i] as number)),
    });
  });
  const dashes = mark.dashed ? DASHES.join(" ") : undefined;
  const style = { fill: "none", stroke: mark.color, "stroke-dasharray": dashes };
  return element("g", style, paths.join(""));
}

function textElement(mark: TextMark): string {
  const [x, y] = [rounded(mark.x), rounded(mark.y)];
  const attributes = {
    // Centre the text vertically with dy, because not every program supports dominant-baseline.
    ...{ x, y, dy: "0.35em", "font-size": mark.size, "font-family": fileFonts(mark.font) },
    ...(mark.bold && { "font-weight": "600" }),
    fill: mark.fill,
    "text-anchor": mark.align === "start" ? undefined : mark.align,
    ...(mark.rotate && { transform: `rotate(${rounded(mark.rotate)} ${x} ${y})` }),
    opacity: opacityText(mark.opacity),
    ...(mark.struck && { "text-decoration": "line-through" }),
    "xml:space": "preserve",
  };
  return element("text", attributes, escapeXml(mark.text));
}

/**
 * Maximum number of cells in all images of an SVG that are not photos or drawings. If there are
 * more, large images are written as pixels, because editors become slow with more shapes.
 */
const MAX_SHAPE_CELLS = 20_000;
/**
 * An image of at most this many cells is written as shapes in every SVG, unless it is a photo or
 * drawing.
 */
const MAX_SIMPLE_CELLS = 128;
/** Maximum number of dots in an SVG. If there are more, dots are written as pixels. */
export const MAX_SHAPE_DOTS = 20_000;

/** Return the number of dots in lists of marks. */
export function countDots(...lists: readonly (readonly Mark[])[]): number {
  return lists.flat().reduce((sum, mark) => sum + (mark.kind === "dots" ? mark.count : 0), 0);
}

/**
 * Return an image as an SVG image element with a PNG in a data URL, or null without canvas support.
 * Its pixels stay sharp when magnified, unless `mark.smooth` is true.
 */
export function imageElement(mark: ImageMark): string | null {
  const href = canvasOf(mark)?.toDataURL("image/png");
  if (href === undefined) return null;
  const { x, y, width, height } = mark;
  return element("image", {
    ...{ x, y, width, height, preserveAspectRatio: "none" },
    ...(!mark.smooth && { style: "image-rendering:pixelated", "image-rendering": "optimizeSpeed" }),
    opacity: opacityText(mark.opacity),
    href,
  });
}

/**
 * Overlap of adjacent cells in pixels. Without an overlap, other programs show thin gaps between
 * cells.
 */
const OVERLAP = 0.4;

/**
 * Return the cells of an image as numbers, with red in the lowest and opacity in the highest byte.
 * If the image has a `ground`, translucent cells are blended with this colour.
 */
function cellsOf({ pixels, ground }: ImageMark): Uint32Array {
  const blended = pixels.slice();
  const color = ground === undefined ? null : Number.parseInt(ground.slice(1), 16);
  for (let offset = 0; color !== null && offset < blended.length; offset += 4) {
    const opacity = (pixels[offset + 3] as number) / 255;
    if (opacity === 0) continue;
    [color >> 16, (color >> 8) & 255, color & 255].forEach((below, i) => {
      blended[offset + i] = (pixels[offset + i] as number) * opacity + below * (1 - opacity);
    });
    blended[offset + 3] = 255;
  }
  return new Uint32Array(blended.buffer);
}

/**
 * Return an image as rectangles, with one rectangle for each run of equal cells in a row. Editors
 * can change the rectangles, which stay sharp when magnified.
 */
function shapeElements(mark: ImageMark): string {
  const { columns, rows } = mark;
  const cells = cellsOf(mark);
  const cellAt = (row: number, column: number): number =>
    row < rows && column < columns ? (cells[row * columns + column] as number) : 0;
  const isOpaque = (row: number, column: number): boolean => cellAt(row, column) >>> 24 === 255;
  const [width, height] = [mark.width / columns, mark.height / rows];
  const shapes: string[] = [];
  for (let row = 0; row < rows; row++) {
    for (let start = 0, stop = 0; start < columns; start = stop) {
      const cell = cellAt(row, start);
      let isCovered = true;
      for (stop = start; stop < columns && cellAt(row, stop) === cell; stop++)
        isCovered &&= isOpaque(row + 1, stop);
      if (cell >>> 24 === 0) continue;
      // Extend the rectangle only under opaque cells at its right and below it. They are drawn
      // later and cover the extension.
      const right = isOpaque(row, stop) ? OVERLAP : 0;
      shapes.push(
        element("rect", {
          x: mark.x + start * width,
          y: mark.y + row * height,
          width: (stop - start) * width + right,
          height: height + (isCovered ? OVERLAP : 0),
          fill: `rgb(${cell & 255},${(cell >> 8) & 255},${(cell >> 16) & 255})`,
          "fill-opacity": opacityText((cell >>> 24) / 255),
        }),
      );
    }
  }
  return element("g", { "shape-rendering": "crispEdges" }, shapes.join(""));
}

/**
 * Return a rectangle with a colour ramp as one SVG gradient. Several rectangles, each of one
 * colour, would have visible gaps.
 */
function rampElements(mark: RectMark, colors: NonNullable<RectMark["ramp"]>): string {
  const stops = colors
    .map(([red, green, blue, opacity], i) =>
      element("stop", {
        offset: String(Math.round((1000 * i) / Math.max(1, colors.length - 1)) / 1000),
        "stop-color": `rgb(${red},${green},${blue})`,
        "stop-opacity": opacityText(opacity / 255),
      }),
    )
    .join("");
  // The id is a hash of the gradient. If several figures in one page have the same id, their
  // gradients are equal, so it does not matter which gradient the page uses.
  let hash = 2166136261;
  for (const character of stops) hash = Math.imul(hash ^ character.charCodeAt(0), 16777619);
  const id = `ramp-${(hash >>> 0).toString(36)}`;
  const { x, y, width, height } = mark;
  return (
    element("defs", {}, element("linearGradient", { id }, stops)) +
    element("rect", { x, y, width, height, fill: `url(#${id})` })
  );
}

function elementsOf(mark: Mark, imagesAsPixels: boolean, dotsAsPixels: boolean): string {
  switch (mark.kind) {
    case "rect": {
      if (mark.ramp) return rampElements(mark, mark.ramp);
      // A rectangle without colours is invisible and only reacts to the pointer.
      if (!mark.fill && !mark.stroke) return "";
      const { x, y, width, height, radius, fill = "none", stroke, strokeWidth = 1 } = mark;
      return element("rect", {
        ...{ x, y, width, height, rx: radius || undefined, fill },
        ...(stroke && { stroke, "stroke-width": strokeWidth }),
        opacity: opacityText(mark.opacity),
      });
    }
    case "line":
      return element("line", {
        ...{ x1: mark.x0, y1: mark.y0, x2: mark.x1, y2: mark.y1, stroke: mark.stroke },
        "stroke-width": mark.strokeWidth ?? 1,
        opacity: opacityText(mark.opacity),
      });
    case "hatch":
      return element("path", {
        d: hatchLines(mark)
          .map((line) => line.map(rounded))
          .map(([x0, y0, x1, y1]) => `M${x0} ${y0}L${x1} ${y1}`)
          .join(""),
        ...{ fill: "none", stroke: mark.stroke, "stroke-width": mark.strokeWidth ?? 1 },
        opacity: opacityText(mark.opacity),
      });
    case "text":
      return textElement(mark);
    case "image": {
      const isLarge = mark.rows * mark.columns > MAX_SIMPLE_CELLS;
      const asPixels = mark.picture || (imagesAsPixels && isLarge);
      return (asPixels ? imageElement(mark) : null) ?? shapeElements(mark);
    }
    case "curves":
      return curveElements(mark);
    case "dots":
      return mark.painter.write(mark, dotsAsPixels);
  }
}

/** Return a scene as an SVG document. `title` is for screen readers and image viewers. */
export function toSvg(scene: Scene, title: string): string {
  const [width, height] = [rounded(scene.width), rounded(scene.height)];
  const marks = [...scene.back, ...scene.front];
  const cells = marks.reduce(
    (sum, mark) => sum + (mark.kind === "image" && !mark.picture ? mark.rows * mark.columns : 0),
    0,
  );
  const dots = countDots(marks);
  const write = (layer: readonly Mark[]): string =>
    layer
      .map((mark) => elementsOf(mark, cells > MAX_SHAPE_CELLS, dots > MAX_SHAPE_DOTS))
      .join("\n");
  const { description, background } = scene;
  const content = [
    element("title", {}, escapeXml(title)),
    description ? element("desc", {}, escapeXml(description)) : "",
    background ? element("rect", { width: "100%", height: "100%", fill: background }) : "",
    element("g", { opacity: opacityText(scene.backOpacity) }, write(scene.back)),
    write(scene.front),
  ].join("\n");
  const viewBox = `0 0 ${width} ${height}`;
  const xmlns = "http://www.w3.org/2000/svg";
  return element("svg", { xmlns, width, height, viewBox, role: "img" }, `\n${content}\n`);
}
