export { default as atlas } from "../views/atlas/index";
