// A task block is an array of 8-byte fields that holds the parameters of a kernel. The caller fills it and passes it to
// the kernel.

export function put(record: usize, field: usize, value: usize): void {
  store<usize>(record + (field << 3), value);
}

export function putFloat(record: usize, field: usize, value: f32): void {
  store<f32>(record + (field << 3), value);
}

export function get(record: usize, field: usize): usize {
  return load<usize>(record + (field << 3));
}

export function getFloat(record: usize, field: usize): f32 {
  return load<f32>(record + (field << 3));
}
