/**
 * Painting of marks on a 2D canvas. A cell is one pixel of an image mark's `pixels`, such as a
 * weight of a heat map.
 */

import { hatchLines } from "./hatch";
import {
  type CurvesMark,
  curveAt,
  DASHES,
  fontOf,
  type ImageMark,
  type Mark,
  type RectMark,
  type Scene,
  type TextMark,
} from "./marks";

/**
 * Number of steps to which opacities of curves are rounded. Curves are painted in the order of
 * their steps, so that more opaque curves lie on top.
 */
const OPACITY_STEPS = 192;

function paintCurves(context: CanvasRenderingContext2D, mark: CurvesMark, dim: number): void {
  const curvesByStep: number[][] = [];
  for (let i = 0; i < mark.count; i++) {
    // The step is at least 1, so that faint curves are visible.
    const exact = Math.round((mark.opacity[i] as number) * OPACITY_STEPS);
    const step = Math.min(OPACITY_STEPS, Math.max(1, exact));
    curvesByStep[step] ??= [];
    curvesByStep[step].push(i);
  }
  context.strokeStyle = mark.color;
  context.lineCap = "butt";
  if (mark.dashed) context.setLineDash(DASHES);
  curvesByStep.forEach((curves, step) => {
    context.globalAlpha = (step / OPACITY_STEPS) * dim;
    for (const i of curves) {
      const [x, y, ...rest] = curveAt(mark, i);
      context.lineWidth = mark.width[i] as number;
      context.beginPath();
      context.moveTo(x, y);
      context.bezierCurveTo(...rest);
      context.stroke();
    }
  });
  if (mark.dashed) context.setLineDash([]);
}

function paintText(context: CanvasRenderingContext2D, mark: TextMark): void {
  context.font = fontOf(mark);
  context.fillStyle = mark.fill;
  context.textAlign = mark.align === "middle" ? "center" : (mark.align ?? "start");
  context.textBaseline = "middle";
  context.save();
  context.translate(mark.x, mark.y);
  if (mark.rotate) context.rotate((mark.rotate * Math.PI) / 180);
  context.fillText(mark.text, 0, 0);
  if (mark.struck) {
    const width = context.measureText(mark.text).width;
    const start = mark.align === "end" ? -width : mark.align === "middle" ? -width / 2 : 0;
    context.fillRect(start, -0.5, width, 1);
  }
  context.restore();
}

// Cache of canvases by pixel array, because images are painted again at every move of the pointer.
const canvases = new WeakMap<ImageMark["pixels"], HTMLCanvasElement>();

/** Return a canvas with an image's pixels, or null without canvas support. */
export function canvasOf(mark: ImageMark): HTMLCanvasElement | null {
  const cached = canvases.get(mark.pixels);
  if (cached) return cached;
  const canvas = document.createElement("canvas");
  canvas.width = mark.columns;
  canvas.height = mark.rows;
  const context = canvas.getContext("2d");
  if (!context) return null;
  context.putImageData(new ImageData(mark.pixels, mark.columns, mark.rows), 0, 0);
  canvases.set(mark.pixels, canvas);
  return canvas;
}

function paintImage(context: CanvasRenderingContext2D, mark: ImageMark): void {
  const canvas = canvasOf(mark);
  if (!canvas) return;
  const averaged = mark.averaged ? averagedCanvas(context, mark, canvas) : null;
  context.imageSmoothingEnabled = mark.smooth ?? averaged !== null;
  context.imageSmoothingQuality = "high";
  context.drawImage(averaged ?? canvas, mark.x, mark.y, mark.width, mark.height);
}

/**
 * A side of a cell with at least this many screen pixels needs no averaging. Such sides may differ
 * by one pixel, which is hardly visible.
 */
const LARGE_CELL = 8;

/**
 * Return a canvas with the image, magnified so that smooth drawing gives each screen pixel the mean
 * of the cells under it. Return null if each side of a cell is large or a whole number of screen
 * pixels, or without canvas support.
 */
function averagedCanvas(
  context: CanvasRenderingContext2D,
  mark: ImageMark,
  canvas: HTMLCanvasElement,
): HTMLCanvasElement | null {
  const { a: scale } = context.getTransform();
  const cellSizes = [(mark.width / mark.columns) * scale, (mark.height / mark.rows) * scale];
  const isUneven = (size: number): boolean =>
    size < LARGE_CELL && Math.abs(size - Math.round(size)) > 1e-3;
  if (!cellSizes.some(isUneven)) return null;
  const [cellWidth = 1, cellHeight = 1] = cellSizes.map((size) => 2 * Math.ceil(size));
  const magnified = document.createElement("canvas");
  magnified.width = cellWidth * mark.columns;
  magnified.height = cellHeight * mark.rows;
  const target = magnified.getContext("2d");
  if (!target) return null;
  target.imageSmoothingEnabled = false;
  target.drawImage(canvas, 0, 0, magnified.width, magnified.height);
  return magnified;
}

function gradientOf(
  context: CanvasRenderingContext2D,
  { x, width }: RectMark,
  ramp: NonNullable<RectMark["ramp"]>,
): CanvasGradient {
  const gradient = context.createLinearGradient(x, 0, x + width, 0);
  ramp.forEach(([red, green, blue, opacity], i) => {
    const share = i / Math.max(1, ramp.length - 1);
    gradient.addColorStop(share, `rgb(${red} ${green} ${blue} / ${opacity / 255})`);
  });
  return gradient;
}

/** Paint marks in order, with all opacities multiplied by `dim`. */
export function paintMarks(context: CanvasRenderingContext2D, marks: Mark[], dim = 1): void {
  for (const mark of marks) {
    // The opacity of dots and curves is not set here. It is applied to each dot or curve, so that
    // an area is more opaque where several of them overlap.
    const isMany = mark.kind === "dots" || mark.kind === "curves";
    context.globalAlpha = (isMany ? 1 : (mark.opacity ?? 1)) * dim;
    switch (mark.kind) {
      case "rect":
        context.beginPath();
        context.roundRect(mark.x, mark.y, mark.width, mark.height, mark.radius ?? 0);
        if (mark.ramp || mark.fill) {
          context.fillStyle = mark.ramp ? gradientOf(context, mark, mark.ramp) : (mark.fill ?? "");
          context.fill();
        }
        if (mark.stroke) {
          context.strokeStyle = mark.stroke;
          context.lineWidth = mark.strokeWidth ?? 1;
          context.stroke();
        }
        break;
      case "line":
        context.strokeStyle = mark.stroke;
        context.lineWidth = mark.strokeWidth ?? 1;
        context.beginPath();
        context.moveTo(mark.x0, mark.y0);
        context.lineTo(mark.x1, mark.y1);
        context.stroke();
        break;
      case "hatch":
        context.strokeStyle = mark.stroke;
        context.lineWidth = mark.strokeWidth ?? 1;
        context.beginPath();
        for (const [x0, y0, x1, y1] of hatchLines(mark)) {
          context.moveTo(x0, y0);
          context.lineTo(x1, y1);
        }
        context.stroke();
        break;
      case "text":
        paintText(context, mark);
        break;
      case "image":
        paintImage(context, mark);
        break;
      case "curves":
        paintCurves(context, mark, dim);
        break;
      case "dots":
        mark.painter.paint(context, mark);
        break;
    }
  }
  context.globalAlpha = 1;
}

/**
 * Give a canvas a size in CSS pixels, with `scale` canvas pixels per CSS pixel, and clear it.
 * Return its context, or null without canvas support.
 */
export function prepareCanvas(
  canvas: HTMLCanvasElement,
  width: number,
  height: number,
  scale = globalThis.devicePixelRatio || 1,
): CanvasRenderingContext2D | null {
  const pixelWidth = Math.max(1, Math.round(width * scale));
  const pixelHeight = Math.max(1, Math.round(height * scale));
  // Compare first, because setting the size reallocates the canvas even if the size is the same.
  if (canvas.width !== pixelWidth) canvas.width = pixelWidth;
  if (canvas.height !== pixelHeight) canvas.height = pixelHeight;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  if (!context) return null;
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** Return a scene as a PNG file with `scale` image pixels per pixel of the scene. */
export async function toPng(scene: Scene, scale: number): Promise<Blob> {
  const canvas = document.createElement("canvas");
  const context = prepareCanvas(canvas, scene.width, scene.height, scale);
  if (!context) throw new Error("This browser has no 2D canvas and cannot write a PNG.");
  if (scene.background) {
    context.fillStyle = scene.background;
    context.fillRect(0, 0, scene.width, scene.height);
  }
  paintMarks(context, scene.back, scene.backOpacity);
  paintMarks(context, scene.front);
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => {
      if (blob) resolve(blob);
      else reject(new Error("The picture is too large for a PNG in this browser."));
    }, "image/png");
  });
}

let measureContext: CanvasRenderingContext2D | null | undefined;
/**
 * Cache of widths by font and text, because a view measures the same tokens again for each layer.
 */
const widthsByFont = new Map<string, Map<string, number>>();
const MAX_CACHED_FONTS = 16;
const MAX_CACHED_WIDTHS = 20_000;

/** Return the width of a text in pixels, or an estimate without canvas support. */
export function measureText(text: string, font: string): number {
  if (measureContext === undefined)
    measureContext = document.createElement("canvas").getContext("2d");
  if (!measureContext) return text.length * 7;
  if (widthsByFont.size > MAX_CACHED_FONTS) widthsByFont.clear();
  const widths = widthsByFont.get(font) ?? new Map<string, number>();
  widthsByFont.set(font, widths);
  if (widths.size > MAX_CACHED_WIDTHS) widths.clear();
  let width = widths.get(text);
  if (width === undefined) {
    measureContext.font = font;
    width = measureContext.measureText(text).width;
    widths.set(text, width);
  }
  return width;
}
