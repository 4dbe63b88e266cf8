/** The reason why the table has no model for the arguments of an operation. It is a verdict, not a failure. */
export class NotModelled extends Error {}
