;; plugin_unavailable: exceptions
(module
  (memory (export "memory") 1)
  (func (export "caponier_v1_call") (result i32) (try (do (nop)) (catch_all (nop))) (i32.const 0))
  (func (export "caponier_v1_describe") (result i32) (i32.const 0)))
