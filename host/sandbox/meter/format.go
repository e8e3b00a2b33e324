package meter

// Limits of a module. They bound the work of the compiler, whose time is quadratic in nesting and
// which ignores its context.
const (
	MaxModule = 16 << 20 // bytes
	MaxTable  = 65_536   // entries
	PageSize  = 65_536   // bytes of a page of memory

	maxTypes, maxParams, maxLocals  = 10_000, 128, 5_000
	maxImports, maxExports, maxName = 200, 1_000, 256
	maxFuncs, maxGlobals            = 100_000, 1_000
	maxSegments, maxCustom          = 100_000, 1_000

	maxNesting  = 4_000
	maxNestWork = 80_000_000 // sum over all blocks of their depth
	// sum over all functions of basic blocks * (basic blocks + 100 * loops): gojq needs 0.7e9
	maxWork = 2_000_000_000
	// of a function: (basic blocks + 50 * loops) * locals, what is alive where: gojq needs 0.2e6
	maxLocalWork    = 4_000_000
	maxLocalWorkAll = 12_000_000 // sum over all functions: gojq needs 4e6
	maxBrTargets    = 8_192
)

// Value types.
const I32, I64, F32, F64 byte = 0x7f, 0x7e, 0x7d, 0x7c

// The opcodes that are named here. Ranges of arithmetic are not.
const (
	opBlock, opLoop, opIf, opElse      = 0x02, 0x03, 0x04, 0x05
	opEnd, opReturn                    = 0x0b, 0x0f
	opBr, opBrIf, opBrTable            = 0x0c, 0x0d, 0x0e
	opCall, opCallIndirect             = 0x10, 0x11
	opLocalGet, opLocalSet, opLocalTee = 0x20, 0x21, 0x22
	opGlobalGet, opGlobalSet           = 0x23, 0x24
	opMemorySize, opMemoryGrow         = 0x3f, 0x40
	opI32Const, opI64Const             = 0x41, 0x42
	opF32Const, opF64Const             = 0x43, 0x44
	opPrefix                           = 0xfc // of saturating conversions and bulk memory

	noResult = 0x40 // type of a block
)

// The opcodes of the code that is added.
const (
	opI32LeS, opI32LeU, opI64GtU  = 0x4c, 0x4d, 0x56
	opI32Add, opI32Sub, opI32ShrU = 0x6a, 0x6b, 0x76
	opI64Add, opI64Shl            = 0x7c, 0x86
	opI64OfI32                    = 0xad
	memoryCopy, memoryFill        = 10, 11 // after opPrefix
	pageSizeBits                  = 16
)
