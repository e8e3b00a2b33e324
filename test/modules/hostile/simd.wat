;; plugin_unavailable: SIMD
(module
  (memory (export "memory") 1)
  (func (export "caponier_v1_call") (result i32) (i32x4.extract_lane 0 (v128.const i32x4 0 0 0 0)))
  (func (export "caponier_v1_describe") (result i32) (i32.const 0)))
