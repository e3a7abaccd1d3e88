/** Output of marks as SVG with real text, for papers and vector editors. */

import { canvasOf } from "./canvas";
import { countDots, MAX_SHAPE_DOTS } from "./dots";
import { fileFonts } from "./fonts";
import {
  type CurvesMark,
  DASHES,
  type ImageMark,
  type Mark,
  printable,
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
  return printable(text).replace(/[&<>"']/g, (character) => ENTITIES[character] as string);
}

function formatNumber(value: number): string {
  return String(Math.round(value * 100) / 100);
}

function opacityAttribute(opacity: number | undefined): string {
  return opacity === undefined || opacity === 1
    ? ""
    : ` opacity="${String(Math.round(opacity * 1000) / 1000)}"`;
}

function curves(mark: CurvesMark): string {
  const vertical = mark.columns === "vertical";
  const paths: string[] = [];
  const order = Array.from({ length: mark.count }, (_, i) => i);
  order.sort((a, b) => (mark.opacity[a] as number) - (mark.opacity[b] as number));
  for (const i of order) {
    const x0 = mark.x0[i] as number;
    const y0 = mark.y0[i] as number;
    const x1 = mark.x1[i] as number;
    const y1 = mark.y1[i] as number;
    const control = vertical
      ? `${formatNumber((x0 + x1) / 2)} ${formatNumber(y0)} ${formatNumber((x0 + x1) / 2)} ${formatNumber(y1)}`
      : `${formatNumber(x0)} ${formatNumber((y0 + y1) / 2)} ${formatNumber(x1)} ${formatNumber((y0 + y1) / 2)}`;
    const opacity = Math.round(Math.min(1, mark.opacity[i] as number) * 1000) / 1000;
    paths.push(
      `<path d="M${formatNumber(x0)} ${formatNumber(y0)}C${control} ${formatNumber(x1)} ${formatNumber(y1)}" stroke-width="${formatNumber(mark.width[i] as number)}" stroke-opacity="${opacity}"/>`,
    );
  }
  const dashes = mark.dashed ? ` stroke-dasharray="${DASHES.join(" ")}"` : "";
  return `<g fill="none" stroke="${escapeXml(mark.color)}"${dashes}>${paths.join("")}</g>`;
}

function text(mark: TextMark): string {
  const anchor = mark.align && mark.align !== "start" ? ` text-anchor="${mark.align}"` : "";
  const transform = mark.rotate
    ? ` transform="rotate(${formatNumber(mark.rotate)} ${formatNumber(mark.x)} ${formatNumber(mark.y)})"`
    : "";
  // Centre the text vertically with dy, because not every program supports dominant-baseline.
  return (
    `<text x="${formatNumber(mark.x)}" y="${formatNumber(mark.y)}" dy="0.35em" font-size="${formatNumber(mark.size)}"` +
    ` font-family="${escapeXml(fileFonts(mark.font))}"${mark.bold ? ' font-weight="600"' : ""}` +
    ` fill="${escapeXml(mark.fill)}"${anchor}${transform}${opacityAttribute(mark.opacity)}` +
    `${mark.struck ? ' text-decoration="line-through"' : ""}` +
    ` xml:space="preserve">${escapeXml(mark.text)}</text>`
  );
}

/** Maximum number of cells that an SVG contains as shapes. Editors become slow with more shapes. */
const MAX_SHAPE_CELLS = 20_000;
/** An image of at most this many cells is always written as shapes. */
const MAX_SIMPLE_CELLS = 128;

/** Return an image as a PNG in a data URL, or null without canvas support. */
function pngOf(mark: ImageMark): string | null {
  return canvasOf(mark)?.toDataURL("image/png") ?? null;
}

/**
 * Return an image as an SVG image element, or null without canvas support. Its pixels stay sharp
 * when magnified, unless it is smooth.
 */
function imageElement(mark: ImageMark): string | null {
  const dataUrl = pngOf(mark);
  if (dataUrl === null) return null;
  return (
    `<image x="${formatNumber(mark.x)}" y="${formatNumber(mark.y)}" width="${formatNumber(mark.width)}"` +
    ` height="${formatNumber(mark.height)}" preserveAspectRatio="none"` +
    `${mark.smooth ? "" : ' style="image-rendering:pixelated" image-rendering="optimizeSpeed"'}` +
    `${opacityAttribute(mark.opacity)} href="${dataUrl}"/>`
  );
}

/** Overlap of adjacent cells in pixels. Without it, programs show thin gaps between cells. */
const OVERLAP = 0.4;

/**
 * Blend translucent cells with the colour under the image, if it has one. Each cell is then either
 * opaque or empty.
 */
function blendWithGround(mark: ImageMark): ImageMark {
  if (!mark.ground) return mark;
  const value = Number.parseInt(mark.ground.slice(1), 16);
  const ground = [value >> 16, (value >> 8) & 255, value & 255];
  const pixels = mark.pixels.slice();
  for (let offset = 0; offset < pixels.length; offset += 4) {
    const opacity = (pixels[offset + 3] as number) / 255;
    if (opacity === 0) continue;
    for (let i = 0; i < 3; i++)
      pixels[offset + i] =
        (pixels[offset + i] as number) * opacity + (ground[i] as number) * (1 - opacity);
    pixels[offset + 3] = 255;
  }
  return { ...mark, pixels };
}

/**
 * Return an image as shapes, with one shape for each run of equal cells in a row. Editors can
 * change them, and they stay sharp when magnified.
 */
function shapeElements(image: ImageMark): string {
  const mark = blendWithGround(image);
  const cellWidth = mark.width / mark.columns;
  const cellHeight = mark.height / mark.rows;
  const cells: string[] = [];
  const isOpaque = (row: number, column: number): boolean =>
    row < mark.rows &&
    column < mark.columns &&
    mark.pixels[(row * mark.columns + column) * 4 + 3] === 255;
  for (let row = 0; row < mark.rows; row++) {
    let start = 0;
    while (start < mark.columns) {
      const offset = (row * mark.columns + start) * 4;
      const isSameColor = (column: number): boolean => {
        const otherOffset = (row * mark.columns + column) * 4;
        for (let i = 0; i < 4; i++)
          if (mark.pixels[otherOffset + i] !== mark.pixels[offset + i]) return false;
        return true;
      };
      let stop = start + 1;
      while (stop < mark.columns && isSameColor(stop)) stop++;
      const [red, green, blue, alpha] = mark.pixels.subarray(offset, offset + 4);
      if (alpha) {
        // Overlap only with opaque cells. They are drawn later and cover the overlapping part.
        const right = isOpaque(row, stop) ? OVERLAP : 0;
        let down = OVERLAP;
        for (let column = start; column < stop; column++) if (!isOpaque(row + 1, column)) down = 0;
        cells.push(
          `<rect x="${formatNumber(mark.x + start * cellWidth)}" y="${formatNumber(mark.y + row * cellHeight)}"` +
            ` width="${formatNumber((stop - start) * cellWidth + right)}" height="${formatNumber(cellHeight + down)}"` +
            ` fill="rgb(${red},${green},${blue})"${alpha === 255 ? "" : ` fill-opacity="${Math.round((alpha / 255) * 1000) / 1000}"`}/>`,
        );
      }
      start = stop;
    }
  }
  return `<g shape-rendering="crispEdges">${cells.join("")}</g>`;
}

/**
 * Return an id for a gradient: a hash of its SVG text, so that only equal gradients have the same
 * id.
 */
function gradientId(text: string): string {
  let hash = 2166136261;
  for (const character of text) hash = Math.imul(hash ^ character.charCodeAt(0), 16777619);
  return `ramp-${(hash >>> 0).toString(36)}`;
}

/** Return a colour ramp as one SVG gradient. Several rectangles would have visible gaps. */
function ramp(mark: RectMark, colors: NonNullable<RectMark["ramp"]>): string {
  const stops = colors
    .map(([red, green, blue, opacity], i) => {
      const offset = Math.round((1000 * i) / Math.max(1, colors.length - 1)) / 1000;
      const stopOpacity =
        opacity === 255 ? "" : ` stop-opacity="${Math.round((opacity / 255) * 1000) / 1000}"`;
      return `<stop offset="${offset}" stop-color="rgb(${red},${green},${blue})"${stopOpacity}/>`;
    })
    .join("");
  const name = gradientId(stops);
  return (
    `<defs><linearGradient id="${name}">${stops}</linearGradient></defs>` +
    `<rect x="${formatNumber(mark.x)}" y="${formatNumber(mark.y)}" width="${formatNumber(mark.width)}"` +
    ` height="${formatNumber(mark.height)}" fill="url(#${name})"/>`
  );
}

function element(mark: Mark, asPixels: boolean, dotsAsPixels: boolean): string {
  switch (mark.kind) {
    case "rect":
      if (mark.ramp) return ramp(mark, mark.ramp);
      // A rectangle without colours is invisible and only reacts to the pointer.
      if (!mark.fill && !mark.stroke) return "";
      return (
        `<rect x="${formatNumber(mark.x)}" y="${formatNumber(mark.y)}" width="${formatNumber(mark.width)}" height="${formatNumber(mark.height)}"` +
        `${mark.radius ? ` rx="${formatNumber(mark.radius)}"` : ""} fill="${escapeXml(mark.fill ?? "none")}"` +
        `${mark.stroke ? ` stroke="${escapeXml(mark.stroke)}" stroke-width="${formatNumber(mark.strokeWidth ?? 1)}"` : ""}` +
        `${opacityAttribute(mark.opacity)}/>`
      );
    case "line":
      return (
        `<line x1="${formatNumber(mark.x0)}" y1="${formatNumber(mark.y0)}" x2="${formatNumber(mark.x1)}" y2="${formatNumber(mark.y1)}"` +
        ` stroke="${escapeXml(mark.stroke)}" stroke-width="${formatNumber(mark.strokeWidth ?? 1)}"${opacityAttribute(mark.opacity)}/>`
      );
    case "text":
      return text(mark);
    case "image":
      return (
        (mark.picture || (asPixels && mark.rows * mark.columns > MAX_SIMPLE_CELLS)
          ? imageElement(mark)
          : null) ?? shapeElements(mark)
      );
    case "curves":
      return curves(mark);
    case "dots":
      return mark.painter.write(mark, dotsAsPixels ? imageElement : null);
  }
}

/** Return a scene as an SVG document. Screen readers and image viewers show `title`. */
export function toSvg(scene: Scene, title: string): string {
  const { width, height } = scene;
  const cells = [...scene.back, ...scene.front].reduce(
    (sum, mark) => sum + (mark.kind === "image" && !mark.picture ? mark.rows * mark.columns : 0),
    0,
  );
  const dotsAsPixels = countDots(scene.back, scene.front) > MAX_SHAPE_DOTS;
  const elementOf = (mark: Mark): string => element(mark, cells > MAX_SHAPE_CELLS, dotsAsPixels);
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${formatNumber(width)}" height="${formatNumber(height)}" viewBox="0 0 ${formatNumber(width)} ${formatNumber(height)}" role="img">`,
    `<title>${escapeXml(title)}</title>`,
    scene.description ? `<desc>${escapeXml(scene.description)}</desc>` : "",
    scene.background
      ? `<rect width="100%" height="100%" fill="${escapeXml(scene.background)}"/>`
      : "",
    `<g${opacityAttribute(scene.backOpacity)}>${scene.back.map(elementOf).join("\n")}</g>`,
    scene.front.map(elementOf).join("\n"),
    "</svg>",
  ].join("\n");
}
