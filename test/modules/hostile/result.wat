;; plugin_protocol: more than 16777216 bytes of output
;; 1 GiB of output.
(module
  (import "caponier_v1" "output_write" (func $output_write (param i32 i32) (result i32)))
  (memory (export "memory") 16)
  (func (export "caponier_v1_call") (result i32) (local $n i32)
    (loop $more
      (drop (call $output_write (i32.const 0) (i32.const 1048576)))
      (br_if $more (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 1024))))
    (i32.const 0))
  (func (export "caponier_v1_describe") (result i32) (i32.const 0)))
