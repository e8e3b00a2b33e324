;; ok
;; WASI names that exist for the sake of toolchains and open nothing: no directory is there, and no path is one.
(module
  (import "caponier_v1" "output_write" (func $output_write (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_prestat_get" (func $prestat (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open" (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 16) "{}/etc/passwd")
  (func $is (param i32 i32) (if (i32.ne (local.get 0) (local.get 1)) (then unreachable)))
  (func (export "caponier_v1_call") (result i32) (local $fd i32)
    (loop $next
      (call $is (call $prestat (local.get $fd) (i32.const 512)) (i32.const 8))
      (call $is (call $read (local.get $fd) (i32.const 512) (i32.const 1) (i32.const 600)) (i32.const 8))
      (call $is (call $open (local.get $fd) (i32.const 1) (i32.const 18) (i32.const 11) (i32.const 0) (i64.const -1) (i64.const -1) (i32.const 0) (i32.const 700)) (i32.const 52))
      (br_if $next (i32.lt_u (local.tee $fd (i32.add (local.get $fd) (i32.const 1))) (i32.const 100))))
    (call $output_write (i32.const 16) (i32.const 2)))
  (func (export "caponier_v1_describe") (result i32) (i32.const 0)))
