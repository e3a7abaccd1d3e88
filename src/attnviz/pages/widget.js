// Module of a widget. Browsers never unload a module, so this one is small, and it loads the view's
// code once for all widgets of the page with the same code. Every widget contains the code, also in
// saved notebooks, so it is deflated, in base64.
const modules = (globalThis[Symbol.for("attnviz modules")] ??= new Map());
async function imported(packed) {
  const bytes = Uint8Array.from(atob(packed), (each) => each.charCodeAt(0));
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const code = await new Response(unpacked).text();
  const address = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
  return import(address).finally(() => URL.revokeObjectURL(address));
}
async function load(model) {
  let module = modules.get("HASH");
  if (!module) {
    module = imported(model.get("_code"));
    modules.set("HASH", module);
    module.catch(() => modules.delete("HASH"));
  }
  return (await module).default();
}
export default () => {
  let widget;
  return {
    async initialize(props) {
      widget = await load(props.model);
      const end = widget.initialize(props);
      return () => {
        end();
        // JupyterLab keeps the models of closed widgets, so free the code. Set it twice, because a
        // model also keeps its previous values.
        props.model.set("_code", "");
        props.model.set("_code", null);
      };
    },
    async render(props) {
      widget ??= await load(props.model);
      return props.signal?.aborted ? undefined : widget.render(props);
    },
  };
};
