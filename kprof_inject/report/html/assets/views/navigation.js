/** From one view to another: "the histogram of this scope", "this line of the source". */

const receivers = new Map();

/** Sets what a view does with a target from another view. Each view sets it again for each launch it shows. */
export function receive(name, callback) {
  receivers.set(name, callback);
}

/** Opens the tab of this name, and hands its view the target. */
export function openView(name, target) {
  document.getElementById(`tab-${name}`)?.click();
  receivers.get(name)?.(target);
}
