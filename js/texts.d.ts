// A style sheet is imported as a string, which the view inserts into the page.
declare module "*.css" {
  const text: string;
  export default text;
}

/**
 * Kind of bundle, a constant that the build defines. The build makes bundles for widgets and for
 * exported pages, and drops the code of the other kind. Tests contain both.
 */
declare const BUNDLE_FOR: "widget" | "page" | "both";
