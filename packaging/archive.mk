# The Makefile of the archive. All is built: the targets that the docs name have nothing left to do.
# make lab starts the simulated nodes.
.PHONY: all demo lab build/pvelab
all build/pvelab:
	@:
lab:
	@examples/lab/start.sh
demo:
	@echo 'the demo is in the repository: it compiles a client; make lab needs nothing'; exit 2
