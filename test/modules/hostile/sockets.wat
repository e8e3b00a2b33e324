;; plugin_unavailable: wasi_snapshot_preview1.sock_send does not exist here
(module
  (import "wasi_snapshot_preview1" "sock_send" (func (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "caponier_v1_call") (result i32) (i32.const 0))
  (func (export "caponier_v1_describe") (result i32) (i32.const 0)))
