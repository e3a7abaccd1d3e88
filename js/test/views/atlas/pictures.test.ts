// @vitest-environment node
import { describe, expect, it } from "vitest";
import type { AtlasRole, AtlasStack, AtlasTable } from "../../../src/client/protocol";
import type { RectMark } from "../../../src/draw/marks";
import { niceMaximum } from "../../../src/ui/colors/color-scales";
import { inkOn, PALETTES, rgbOf } from "../../../src/ui/colors/palette";
import { signsOf } from "../../../src/ui/head-grid/head-roles";
import {
  definitionInWords,
  evidenceInWords,
  unitInWords,
  withError,
} from "../../../src/views/atlas/captions";
import { Table } from "../../../src/views/atlas/client/atlas";
import { byRole, byStatistic, roleEntries } from "../../../src/views/atlas/coloring";
import { barAt, layOutProfile, profileMarks } from "../../../src/views/atlas/marks";
import { sentences } from "../../builders";
import { contrast } from "../../sight";
import { FIXTURE, STACK } from "./kernel";

const room = { palette: PALETTES.light, theme: "light" as const };

function tableOf(stack: Partial<AtlasStack>, answer: Partial<AtlasTable>): Table {
  return new Table({ ...STACK, ...stack }, { ...FIXTURE.values.table, ...answer });
}

it("letters of roles are different, and come from the name if possible", () => {
  const names = ["previous token", "positional", "first token", "same token", "syntax", "…"];
  expect(signsOf(names).join("")).toBe("POFSYA");
});

describe("colours", () => {
  it("of roles are distinguishable with any colour vision, and by letters beyond eight", () => {
    const roles = Array.from({ length: 10 }, (_, i) => ({ name: `role ${i}`, definition: "" }));
    const role = FIXTURE.values.table.roles[0]?.[0]?.[0];
    const table = tableOf(
      { roles, heads_per_layer: [10], layers: [0] },
      { roles: [roles.map((_, i) => [{ ...role, role: i } as never])] },
    );
    const coloring = byRole([table], roleEntries([table], room.palette));
    const looks = roles.map((_, head) => coloring.of({ layer: 0, head }));
    expect(looks.slice(0, 8).map(({ fill }) => fill)).toEqual([...PALETTES.light.heads]);
    expect(looks.slice(8).map(({ fill }) => fill)).toEqual(Array(2).fill(PALETTES.light.neutral));
    expect(new Set(looks.map(({ sign }) => sign)).size).toBe(10);
  });

  it("of the role that most heads have is grey, and of a role that is the only one is not", () => {
    const roles = ["first token", "induction"].map((name) => ({ name, definition: "" }));
    const role = FIXTURE.values.table.roles[0]?.[0]?.[0];
    const fillsOf = (indices: number[]) => {
      const answer = [indices.map((index) => [{ ...role, role: index } as never])];
      const table = tableOf(
        { roles, heads_per_layer: [indices.length], layers: [0] },
        { roles: answer },
      );
      const coloring = byRole([table], roleEntries([table], room.palette));
      return indices.map((_, head) => coloring.of({ layer: 0, head }).fill ?? "");
    };
    const spread = (fill: string): number => Math.max(...rgbOf(fill)) - Math.min(...rgbOf(fill));
    const [first, , , induction] = fillsOf([0, 0, 0, 1]) as string[];
    expect(spread(first as string)).toBeLessThan(20);
    expect(induction).toBe(PALETTES.light.heads[0]);
    expect(fillsOf([0, 0])[0]).toBe(PALETTES.light.heads[0]);
    const [half] = fillsOf([0, 0, 1, 1]);
    expect(PALETTES.light.heads).toContain(half);
  });

  it("of a statistic end at a round number, with the median baseline", () => {
    const means = [
      [
        [0.2, 0.72],
        [0.5, null],
      ],
    ];
    const table = tableOf({}, { means: [...means, ...means] });
    const { legend, of } = byStatistic(table, 0, room);
    expect(legend).toMatchObject({ kind: "scale", low: 0, end: niceMaximum(0.72), baseline: 0.25 });
    expect(of({ layer: 5, head: 1 })).toMatchObject({ fill: null, sign: "–" });
    expect(of({ layer: 2, head: 1 }).sign).toBe(".72");
    // Another stack has another scale.
    expect(of({ layer: 2, head: 1, stack: "linear" })).toMatchObject({ fill: null, sign: "" });
    // The background is light, so larger values are darker.
    const light = (fill: string | null): number => rgbOf(fill ?? "").reduce((a, b) => a + b);
    expect(light(of({ layer: 2, head: 0 }).fill)).toBeGreaterThan(
      light(of({ layer: 5, head: 0 }).fill),
    );
    expect(light(of({ layer: 5, head: 0 }).fill)).toBeGreaterThan(
      light(of({ layer: 2, head: 1 }).fill),
    );
  });

  it("of tiny numbers are those of zero", () => {
    const means = [
      [1e-9, 0],
      [0, 2e-9],
    ];
    const { legend, of } = byStatistic(tableOf({}, { means: [means, []] }), 0, room);
    expect(legend).toMatchObject({ low: 0, end: 0.01 });
    expect(of({ layer: 5, head: 1 })).toEqual(of({ layer: 2, head: 1 }));
  });

  it("of signed numbers are symmetric around zero", () => {
    const means = [
      [-0.2, 0.1],
      [0, 0.2],
    ];
    const { legend, of } = byStatistic(tableOf({}, { means: [means, []] }), 0, room);
    expect(legend).toMatchObject({ low: -0.2, end: 0.2 });
    expect(of({ layer: 5, head: 0 }).fill).toBe(PALETTES.light.background);
    expect(of({ layer: 2, head: 0 })).toMatchObject({
      fill: PALETTES.light.negative,
      sign: "−.20",
    });
    expect(of({ layer: 5, head: 1 }).fill).toBe(PALETTES.light.positive);
  });

  it("have letters with a contrast of at least 4.5 to 1 in both themes", () => {
    for (const palette of [PALETTES.light, PALETTES.dark])
      for (const color of [...palette.heads, palette.neutral, palette.rule])
        expect(contrast(color, inkOn(color))).toBeGreaterThanOrEqual(4.5);
  });
});

it("bars of offsets are found at their position", () => {
  const labels = ["-2", "-1", "0", "1", "first", "rest"];
  // The offset 1 is not drawn: its weight is NaN, because no pair of tokens has this offset.
  const weights = Float32Array.of(0.1, 0.4, 0.2, Number.NaN, 0.3, 0);
  const profile = layOutProfile(labels, weights, 400);
  const fills: unknown[] = [PALETTES.light.positive, PALETTES.light.neutral];
  const bars = profileMarks(profile, PALETTES.light).filter(
    (mark): mark is RectMark => mark.kind === "rect" && fills.includes(mark.fill),
  );
  expect(profile.bars.map(({ offset }) => offset)).toEqual([-2, -1, 0, null, null]);
  expect(bars.map((bar) => barAt(profile, bar.x + bar.width / 2))).toEqual([0, 1, 2, 3, 4]);
  expect(new Set(bars.map(({ y, height }) => (y + height).toFixed(6))).size).toBe(1);
  expect(barAt(profile, 0)).toBe(-1);
});

describe("distant offsets", () => {
  const labels = [...Array.from({ length: 65 }, (_, i) => String(i - 64)), "first", "rest"];
  /** Return 0.5 for "rest" and for offsets of at most 9 tokens, and `far` for the other bins. */
  const weightsOf = (far: number): Float32Array =>
    Float32Array.from(labels, (label) =>
      Math.abs(Number(label)) <= 9 || label === "rest" ? 0.5 : far,
    );

  it("are omitted if their bars would be invisible, which the axis mentions", () => {
    const weights = weightsOf(0.0049);
    const profile = layOutProfile(labels, weights, 600);
    expect(profile.beyond).toBe(16);
    const drawn = [...labels.slice(48, 65), "first", "rest"];
    expect(profile.bars.map(({ label }) => label)).toEqual(drawn);
    const texts = profileMarks(profile, PALETTES.light).map((mark) =>
      mark.kind === "text" ? mark.text : "",
    );
    expect(texts).toContain("offset of the key from the query; beyond 16: less than 0.005 each");
    const axis = ["−16", "−8", "−4", "−2", "−1", "0", "first", "rest"];
    expect(texts.filter((text) => text !== "").slice(3, -1)).toEqual(axis);
  });

  it("are drawn if a bar would be visible", () => {
    const { bars, beyond } = layOutProfile(labels, weightsOf(0.0051), 600);
    expect([bars.length, beyond]).toEqual([labels.length, null]);
    // The offsets below -16 have no weights at all, so the axis need not mention that they are
    // omitted.
    expect(layOutProfile(labels, weightsOf(0.5).fill(Number.NaN, 0, 48), 600).beyond).toBeNull();
  });
});

describe("captions", () => {
  const role = FIXTURE.values.table.roles[0]?.[0]?.[1] as AtlasRole;
  const none = [null, null];
  const undefinedEverywhere = tableOf({}, { means: [[none, none], []] });
  const figures: [number, number | null][] = [
    [0.98123, 0.0123],
    [0.98123, 0.00123],
    [-0.5, null],
    [0, 0],
    [0.153868, 5e-7],
    [0.000079, 2e-6],
    [0.000002, 1e-6],
    [0.0031, 1e-9],
  ];
  sentences({
    // A mean is written with as many digits as its error.
    "0.98 ± 0.01, 0.981 ± 0.001, −0.50, 0, 0.15 ± <0.01, 0.00008 ± <0.00001, <0.00001, <0.01":
      figures.map(([mean, error]) => withError(mean, error)).join(", "),
    "0.25 above its baseline of 0.25, 95% interval 0.12 to 0.38, p < 1e−6 after correction, 3 texts":
      evidenceInWords(role),
    // The interval is narrow, so two decimals would show two equal ends. The baseline has as many
    // digits as the difference, so that their sum is the score.
    "0.8614 above its baseline of 0.2500, 95% interval 0.8612 to 0.8616, p < 1e−6 after correction, 3 texts":
      evidenceInWords({ ...role, difference: 0.8614, low: 0.8612, high: 0.8616 }),
    "×·×·× bits": ["share", "factor", "bits"].map((unit) => `×${unitInWords(unit)}`).join("·"),
    "Attends to it.": definitionInWords("attends to it"),
    "previous token not defined": byStatistic(undefinedEverywhere, 0, room).words({
      layer: 2,
      head: 0,
    }),
  });
});
