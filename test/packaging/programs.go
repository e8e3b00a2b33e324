//go:build ignore

// Command programs reads the programs of the bundle as the loaders of their systems do:
// go run test/packaging/programs.go DIR
package main

import (
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"log"
	"os"
	"path/filepath"
)

func main() {
	log.SetFlags(0)
	file := func(name string) string { return filepath.Join(os.Args[1], name) }
	fat, err := macho.OpenFat(file("caponier-connect"))
	check(err)
	if len(fat.Arches) != 2 || fat.Arches[0].Cpu != macho.CpuAmd64 ||
		fat.Arches[1].Cpu != macho.CpuArm64 || fat.Arches[0].File.Type != macho.TypeExec ||
		fat.Arches[1].Offset%(1<<14) != 0 {
		log.Fatalf("caponier-connect: %+v", fat.Arches)
	}
	linux, err := elf.Open(file("caponier-connect-linux"))
	check(err)
	if linux.Machine != elf.EM_X86_64 || linux.Section(".interp") != nil {
		log.Fatalf("caponier-connect-linux: %+v", linux.FileHeader)
	}
	windows, err := pe.Open(file("caponier-connect.exe"))
	check(err)
	if windows.Machine != pe.IMAGE_FILE_MACHINE_AMD64 {
		log.Fatalf("caponier-connect.exe: %+v", windows.FileHeader)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
