/** The atlas of `tests/fixtures/atlas.json`, which a fake kernel or a page serves. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fromBase64 } from "../../../src/client/codec";
import type {
  AtlasDescription,
  AtlasEdges,
  AtlasTable,
  AtlasTexts,
} from "../../../src/client/protocol";
import { Source } from "../../../src/client/source";
import type { Connection, Reply, Transport } from "../../../src/client/transport";
import { type AtlasPageData, AtlasPageTransport } from "../../../src/views/atlas/client/page";
import {
  ATLAS_DEFAULTS,
  type AtlasState,
  describedAtlas,
  stackOf,
} from "../../../src/views/atlas/state";
import { tokensOf } from "../../builders";
import { type Room as RoomOf, roomOf } from "../../view-context";

interface Answered {
  arguments: Record<string, unknown>;
  header: object;
  data: string;
}

interface Fixture {
  texts: { tokens: string[]; pos: (string | null)[]; weights: number[][][][] }[];
  description: AtlasDescription;
  live: Record<"statistics" | "texts" | "offsets" | "classes" | "edges", Answered[]>;
  page: AtlasPageData["atlas"];
  values: {
    table: AtlasTable;
    offsets: (number | null)[][][];
    classes: Record<string, (number | null)[][][][]>;
    kept: AtlasTexts;
    edges: AtlasEdges[];
  };
}

export const FIXTURE = JSON.parse(
  readFileSync(join(__dirname, "../../../../tests/fixtures/atlas.json"), "utf8"),
) as Fixture;

/** Description of the stack of the fixture. */
export const STACK = FIXTURE.description.stacks[0] as AtlasDescription["stacks"][0];

/** Fake kernel. It replies at once, or delays replies until a test releases them. */
export class Kernel implements Transport {
  live = true;
  readonly asked: [string, Record<string, unknown>][] = [];
  /**
   * Function that returns whether a request is delayed, and functions that release the delayed
   * replies, oldest first.
   */
  held: (name: string) => boolean = () => false;
  waiting: (() => void)[] = [];
  failing: ReadonlyMap<string, string> = new Map();
  description = FIXTURE.description;

  retry(): void {}

  watch(listener: (connection: Connection) => void): void {
    listener("ready");
  }

  async request(name: string, args: object, ended?: AbortSignal): Promise<Reply> {
    const request = args as Record<string, unknown>;
    this.asked.push([name, request]);
    if (this.held(name)) {
      await new Promise<void>((resolve, reject) => {
        this.waiting.push(resolve);
        ended?.addEventListener("abort", () =>
          reject(new DOMException("request up", "AbortError")),
        );
      });
    }
    const failure = this.failing.get(name);
    if (failure) throw new Error(failure);
    if (typeof request.text === "number") return ofText(name, request.text);
    if (name === "describe") return { header: this.description, data: null };
    const recorded = FIXTURE.live[name as "texts"]?.find(({ arguments: parameters }) =>
      Object.entries(parameters).every(([key, value]) => request[key] === value),
    );
    if (!recorded) throw new Error(`No answer to ${name} ${JSON.stringify(request)}.`);
    return { header: recorded.header, data: fromBase64(recorded.data) };
  }
}

/** Return the description of the record of a text. Other requests for this record never resolve. */
function ofText(name: string, text: number): Promise<Reply> {
  if (name !== "describe") return new Promise(() => {});
  const tokens = FIXTURE.texts[text]?.tokens ?? [];
  const stack = { ...stackOf(STACK), query_tokens: tokensOf(tokens) };
  return Promise.resolve({ header: { model: "fixture", notes: [], stacks: [stack] }, data: null });
}

export function pageTransport(): AtlasPageTransport {
  return new AtlasPageTransport({
    format: 2,
    description: FIXTURE.description,
    atlas: FIXTURE.page,
  } as unknown as AtlasPageData);
}

export type Room = RoomOf<AtlasState>;

/** Create the context of an atlas view for a transport. */
export function roomWith(changed: Partial<AtlasState>, transport: Transport): Room {
  const described = describedAtlas as (answer: unknown) => ReturnType<typeof describedAtlas>;
  const state = { ...ATLAS_DEFAULTS, stack: "self", ...changed };
  return roomOf<AtlasState>(state, new Source(transport, undefined, described));
}
