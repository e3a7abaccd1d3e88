// The widgets of all views of records, in one module. A notebook sends it once for all of its views.

export { default as compare } from "../views/compare/index";
export { default as dashboard } from "../views/dashboard/index";
export { default as head } from "../views/head/index";
export { default as matrix } from "../views/matrix/index";
export { default as model } from "../views/model/index";
export { default as neuron } from "../views/neuron/index";
