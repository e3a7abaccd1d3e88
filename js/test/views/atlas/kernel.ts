/** Fake kernel and page for an atlas view (of all heads), from `tests/fixtures/atlas.json`. */

import { fromBase64 } from "../../../src/client/codec";
import { type RecordedReply, RecordedTransport } from "../../../src/client/page/recorded";
import type {
  AtlasDescription,
  AtlasEdges,
  AtlasTable,
  AtlasTexts,
} from "../../../src/client/protocol";
import { Source } from "../../../src/client/source";
import type { Reply, Transport } from "../../../src/client/transport";
import { type AtlasState, describedAtlas, stackOf } from "../../../src/views/atlas/state";
import { readFixture, tokensOf } from "../../builders";
import { ATLAS_DEFAULTS } from "../../defaults";
import { FakeKernel } from "../../fakes";
import { setUpView, type ViewSetup } from "../../view-context";

interface Answered {
  arguments: Record<string, unknown>;
  header: object;
  data: string;
}

interface Fixture {
  texts: { tokens: string[]; weights: number[][][][] }[];
  description: AtlasDescription;
  live: Record<"statistics" | "texts" | "offsets" | "edges", Answered[]>;
  page: RecordedReply[];
  values: {
    table: AtlasTable;
    offsets: (number | null)[][][];
    kept: AtlasTexts;
    edges: AtlasEdges[];
  };
}

export const FIXTURE = readFixture<Fixture>("atlas.json");

/** Description of the only stack of the fixture. */
export const STACK = FIXTURE.description.stacks[0] as AtlasDescription["stacks"][0];

/** Fake kernel with the replies in the fixture. */
export class Kernel extends FakeKernel {
  description = FIXTURE.description;

  protected override reply(name: string, args: object): Reply | Promise<Reply> {
    const request = args as Record<string, unknown>;
    if (typeof request.text === "number") return ofText(name, request.text);
    if (name === "describe") return { header: this.description, data: null };
    const recorded = FIXTURE.live[name as "texts"]?.find(({ arguments: parameters }) =>
      Object.entries(parameters).every(([key, value]) => request[key] === value),
    );
    if (!recorded) throw new Error(`No answer to ${name} ${JSON.stringify(request)}.`);
    return { header: recorded.header, data: fromBase64(recorded.data) };
  }
}

/** Reply to a `describe` request for one text. The promises of other requests never settle. */
function ofText(name: string, text: number): Promise<Reply> {
  if (name !== "describe") return new Promise(() => {});
  const tokens = FIXTURE.texts[text]?.tokens ?? [];
  const stack = { ...stackOf(STACK), query_tokens: tokensOf(tokens) };
  return Promise.resolve({ header: { model: "fixture", notes: [], stacks: [stack] }, data: null });
}

export function pageTransport(): RecordedTransport {
  const { description, page: replies } = FIXTURE;
  return new RecordedTransport({ format: 1, description, replies });
}

export type Setup = ViewSetup<AtlasState>;

/** Create the state and the context of an atlas view for a transport. */
export function setUp(changed: Partial<AtlasState>, transport: Transport): Setup {
  const state = { ...ATLAS_DEFAULTS, stack: "self", ...changed };
  return setUpView<AtlasState>(state, new Source(transport, undefined, describedAtlas));
}
