;; plugin_memory: sandbox.memory_max
;; Grows page by page, touches every one, and gives up when it is refused more.
(module
  (memory (export "memory") 1)
  (func (export "caponier_v1_call") (result i32) (local $page i32)
    (loop $more
      (local.set $page (memory.grow (i32.const 1)))
      (if (i32.ge_s (local.get $page) (i32.const 0)) (then
        (memory.fill (i32.shl (local.get $page) (i32.const 16)) (i32.const 1) (i32.const 65536))
        (br $more))))
    unreachable)
  (func (export "caponier_v1_describe") (result i32) (i32.const 0)))
