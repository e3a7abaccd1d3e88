export { default as embedding } from "../views/embedding/index";
