# Everything runs with Go, git and make. The two commands of a newcomer: make demo, make test.
SHELL := /bin/bash
GO ?= go
# The lock has the digests of what these flags make, whatever GOFLAGS says on the command line.
WASM := GOOS=wasip1 GOARCH=wasm $(GO) build -trimpath -buildvcs=false -ldflags="-s -w" -buildmode=c-shared
TOOL := $(GO) tool -modfile=test/tools/go.mod
PLUGINS := $(patsubst plugins/%/main.go,%,$(wildcard plugins/*/main.go))
MODULES := $(patsubst test/modules/%/main.go,%,$(wildcard test/modules/*/main.go))
SDK := $(wildcard sdk/*.go sdk/*/*.go sdk/internal/*/*.go) sdk/go.mod go.mod
# Every package of both modules: the SDK is one of its own.
ALL := ./... github.com/caponier-mcp/caponier/sdk/...
# The same for all: what one of them compiled, the others find in Go's cache.
export GOFLAGS := -buildvcs=false -trimpath
export CGO_ENABLED := 0

.PHONY: all plugins modules others keyless demo lab test bare bare-short check changes fmt lint policy race bench bench-parts soak chaos replicas thorough nightly fuzz lock docs conformance release sign dist dist-check packaging packaging-all site spelling clean
all: build/caponier plugins

build/caponier: $(shell find host client policies -name '*.go' -o -name '*.rego' -o -name '*.json' -o -name '*.yaml' -o -name '*.tmpl' 2>/dev/null) go.mod go.sum
	@echo '  $@'; $(GO) build -o $@ ./host/cmd/caponier

plugins: $(PLUGINS:%=build/plugins/%.wasm)
build/plugins/%.wasm: plugins/%/*.go $(wildcard plugins/internal/*/*.go) $(SDK)
	@mkdir -p $(@D); echo '  $@'; $(WASM) -o $@ ./plugins/$*

modules: $(MODULES:%=build/modules/%.wasm)
build/modules/%.wasm: test/modules/%/*.go $(SDK)
	@mkdir -p $(@D); echo '  $@'; $(WASM) -o $@ ./test/modules/$*

# The same plugin as test/modules/behave in the other languages: needs clang, lld, Debian's rustc with libstd-rust-dev-wasm32, and npm with its registry once.
OTHERS := build/modules/behave-c.wasm build/modules/behave-as.wasm build/modules/behave-rust.wasm
RUSTC ?= /usr/bin/rustc
others: $(OTHERS)
build/modules/behave-c.wasm: test/modules/behave-c/behave.c sdk/c/caponier.h
	@mkdir -p $(@D)
	clang --target=wasm32 -O2 -nostdlib -ffreestanding -mbulk-memory -Wall -Wextra -Wno-parentheses -Werror -Wl,--no-entry -Wl,--strip-all -I sdk/c -o $@ $<
build/modules/behave-rust.wasm: test/modules/behave-rust/behave.rs sdk/rust/caponier.rs
	@mkdir -p $(@D)
	$(RUSTC) --edition 2021 --target wasm32-unknown-unknown -O -D warnings -C panic=abort -C strip=symbols -C linker=wasm-ld -C linker-flavor=wasm-ld --crate-type cdylib -o $@ $<
build/asc/node_modules: sdk/assemblyscript/package-lock.json
	@mkdir -p build/asc
	cp sdk/assemblyscript/package*.json build/asc
	npm ci --prefix build/asc --ignore-scripts --no-audit --no-fund
	@touch $@
build/modules/behave-as.wasm: test/modules/behave-as/behave.ts sdk/assemblyscript/caponier.ts | build/asc/node_modules
	@mkdir -p $(@D)
	build/asc/node_modules/.bin/asc $< -O3 --runtime stub --use abort= -o $@

# What verifies keyless signatures of plugins, a module of its own, and what makes some for tests.
keyless: build/caponier-keyless build/sigstorelab
build/caponier-keyless build/sigstorelab: $(shell find keyless -name '*.go') keyless/go.mod keyless/go.sum
	@mkdir -p $(@D); echo '  $@'; $(GO) build -C keyless -ldflags="-s -w" -o ../$@ $(if $(filter %lab,$@),./cmd/sigstorelab,.)

# The main job on a simulated node: a real MCP client, the real binary, SSH and SFTP. See test/demo.
demo:
	@echo 'make demo: building the host, its plugins and a simulated node (2 to 3 minutes the first time)'
	@$(MAKE) --no-print-directory all modules build/pvelab
	@$(GO) run ./test/demo

# A simulated node to play with, in build/lab: its configuration, its site (yours to edit), its journal.
lab: all build/pvelab
	@examples/lab/start.sh

build/pvelab: $(wildcard test/pvelab/*.go test/pvelab/*/*/*.go) go.mod
	@echo '  $@'; $(GO) build -o $@ ./test/pvelab/cmd/pvelab

# What needs only Go, git and make, and five minutes from an empty cache on two processors: the packages without the tests that take longest, then the
# real binary. All tests, also those that need sshd, sudo, shells and browsers, are make check.
QUICK := TestScripts/(happy|refused|arguments)
LONG := TestLeavingSomethingOutNeverWidens|TestTheTestsOfCoreCoverIt|TestWhatIsAskedOfAToolIsAskedOfItsAliases|TestWhatASiteAddsChangesNothingOfCore|TestTracingSeesWhatIsNotReading|TestEveryExampleOfTheDocsHolds|TestWhatASiteReadsIsAskedAnew|TestWhatIsListedRunsAndNothingElse|TestNarrowedRolesAreAUnionOfPowersEachWhole|TestADiff|TestASuggestion|TestTheProofFindsWhatIsWrong|TestNothingIsSuggestedThatCouldGetAroundARule|TestPlainOPAWorksInAnExport|TestANodeThatLies|TestExecFaults|TestNetworkFaults|TestUnderRandomCutsNothingIsDoneTwiceOrLostInSilence|TestOnePrincipalLeavesSessionsToTheOthers|TestPluginsSayTheSameRewritten|TestHostileModules|TestHandWrittenHostileModules|TestAHostileViewer|TestTheSpecificationsTestsRunTheSameRewritten|TestAdmittedModulesCompileInBoundedTime|TestSwapUnderLoadNeverGivesAWrongAnswer|TestNarrowingKeysAreTaken|TestASlowClientHoldsNothing|TestAStrangersConnectionEndsSoon|TestGoodCallsAmongHostileOnes|TestLargePingsDoNotStopOthers|TestPingsAndNotificationsCountAgainstTheirPrincipal|TestAnUnreachableOrLyingProviderIsReported|TestPostgres|TestTokensAndFreezesAreTheSameInFilesAndInADatabase|TestANotificationComesBeforeTheNextLook|TestTheIndexFindsWhatTheJournalSays|TestNoFactOfAGuestMakesAnythingLessRefused|TestRandomRulesOfOneKeyHaveOneAnswer|TestModulesOfFourLanguagesBehaveTheSame|TestTheLabAnswersEveryEntryOfTheGrammar|TestRealShellsRunTheTextAsItWasLowered|TestALongCallIsNotReadAgainAndAgain|TestCanSaysWhatTheDoorSays|TestQuestionsOfOneKeyHaveOneAnswer|TestTheOrderIsTheSameEachTime|TestHeldBodiesHaveABudget|TestSpinningInstancesDoNotStallTheHost|TestFloodKeepsMemoryFlat|FuzzScript
SHORT := $(GO) test -short -vet=off -ldflags='-s -w'
BRIEF := $(SHORT) -skip '^($(LONG))'
test:
	@echo 'make test: building the host and its plugins; on a cold cache this takes 90 seconds'
	@$(MAKE) --no-print-directory all modules build/pvelab
	@echo 'make test: testing the packages'
	GOGC=400 $(BRIEF) -p 3 $$($(GO) list $(ALL) | grep -v -e '/caponier/test$$' -e /test/bench -e /test/rules)
	@echo 'make test: running the real binary against a simulated node'
	$(SHORT) -run '$(QUICK)' ./test

# make test where there is nothing but Go, git and make. CI runs packages whose tests start programs.
bare:
	@sh test/bare.sh $(MAKE) --no-print-directory test
bare-short:
	@sh test/bare.sh $(BRIEF) ./host/result ./host/shell ./host/signature ./test/pvelab

# What CI runs, and what to run before every change.
check: changes fmt lint policy all modules lock-current docs-current race

# What users see does not change without a line in CHANGELOG.md: everything since the branch left BASE is looked at, committed or not.
BASE ?= origin/main
changes:
	@base=$$(git merge-base HEAD $(BASE) 2>/dev/null) || { echo "changes: there is no $(BASE) to compare with (BASE=…)"; exit 0; }; \
	git diff --quiet "$$base" -- CHANGELOG.md || exit 0; \
	seen=$$(git diff --name-only "$$base" -- config.toml plugins.lock docs/tools.md docs/abi.md host/cmd client sdk policies/core policies/schemas packaging examples/clients | grep -v _test || true); \
	test -z "$$seen" || { printf 'CHANGELOG.md says nothing of what users see in:\n%s\nAdd a line under "## Unreleased": what they can do now, or must do differently.\n' "$$seen"; exit 1; }

fmt:
	@out=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "not gofmt'ed: $$out"; exit 1; }

lint:
	$(GO) vet $(ALL)
	$(TOOL) staticcheck $(ALL)
	cd keyless && $(GO) vet ./... && $(GO) tool -modfile=../test/tools/go.mod staticcheck ./...
	@dead=$$($(TOOL) deadcode -filter '^github.com/caponier-mcp/caponier/(host|client)(/|$$)' ./host/cmd/caponier) || exit 1; \
	if test -n "$$dead"; then echo "$$dead"; echo 'lint: the program never reaches these functions: delete them'; exit 1; fi

policy:
	$(TOOL) opa fmt --fail -l policies examples/lab/site
	$(TOOL) opa check --strict --capabilities policies/capabilities.json -s policies/schemas policies
	$(TOOL) opa test --fail-on-empty --timeout 60s policies

# Every test, once: under the race detector, but for what takes ten times as long there and shares nothing. That is Rego, of which only what changes the
# engine runs there; what compiles and compares modules, which comes first, so that the rest finds them in build/cache; and the tests in test/, which drive
# the real binary. Two jobs side by side, since many tests wait. lint has vetted all. With ANEW=-count=1 nothing is taken
# from what Go remembers of the last run.
CHANGING := Swap|Watch|Reload|Concurrent
COMPARING := TheSpecification|SayTheSameRewritten|Describe|FourLanguages
PURE := -e '/host/plaintext$$' -e '/host/plan$$' -e '/host/shell$$' -e '/caponier/plugins/' -e '/caponier/sdk' -e '/caponier/test/' # without goroutines of the host
# What reads thousands of records with SQLite, on one goroutine.
READING := TheIndexFindsWhatTheJournalSays|ALongCall
TESTS = MAKEFLAGS= MFLAGS= $(GO) test -vet=off -short -timeout 45m $(ANEW)
RACE = MAKEFLAGS= MFLAGS= CGO_ENABLED=1 $(GO) test -vet=off -race -short -timeout 45m $(ANEW)
race: all modules keyless build/pvelab
	@$(MAKE) --no-print-directory -j2 tests-of-packages tests-of-the-binary
.PHONY: tests-of-packages tests-of-the-binary
tests-of-packages:
	$(TESTS) -run '$(COMPARING)|AmongHostile' ./host/sandbox # the latter whole, in part under the race detector
	cd keyless && $(TESTS) ./...
	$(TESTS) ./test/rules # reads the whole program: ten times the memory under the race detector
	$(TESTS) $$($(GO) list $(ALL) | grep $(PURE) | grep -v /test/rules)
	$(TESTS) -run '$(READING)' ./host/audit/index
	$(RACE) -skip '$(READING)' $$($(GO) list $(ALL) | grep -v -e /host/policy -e /host/sandbox -e '/caponier/test$$' $(PURE))
	$(RACE) -skip '$(COMPARING)' ./host/sandbox
	$(RACE) -run '$(CHANGING)' ./host/policy/...
	GOGC=400 $(TESTS) -skip '$(CHANGING)' ./host/policy/...
tests-of-the-binary: # many short processes, in which collecting garbage is a quarter of the work
	GOGC=400 $(TESTS) -count=1 ./test

# The committed lock must be what the committed sources build to. That the lock says the same of the modules as they do is for the last lines of docs/operating.md.
lock: plugins build/caponier
	build/caponier plugin lock --lock plugins.lock --dir build/plugins
lock-current: plugins
	@for m in build/plugins/*.wasm; do grep -q "sha256:$$(sha256sum < $$m | cut -d ' ' -f 1)" plugins.lock || { echo "plugins.lock is not of $$m: make lock, and review the difference"; exit 1; }; done

docs:
	$(GO) run ./test/toolsdoc > docs/tools.md
	@$(GO) run ./test/operationtable > build/operations.rego && mv build/operations.rego policies/core/operations.rego
docs-current:
	@$(GO) run ./test/operationtable | diff -u policies/core/operations.rego - || { echo "policies/core/operations.rego is not current: make docs"; exit 1; }
	@$(GO) run ./test/toolsdoc | diff -u docs/tools.md - || { echo "docs/tools.md is not current: make docs"; exit 1; }

# Whole calls of the real binary beside a raw exec and a bare server of the same SDK, over a real sshd: two minutes, and docs/benchmarks.md. With GOGC=N in
# the environment the host runs with that. BENCH_ROUNDS=1 is the short form.
bench: all
	BENCH_JSON=$(CURDIR)/docs/benchmarks.json $(GO) test -count=1 -run '^$$' -bench Table -benchtime 1x ./test/bench
	@$(GO) run ./test/bench/page docs/benchmarks.json > docs/benchmarks.md; echo 'see docs/benchmarks.md'

# What single parts cost.
bench-parts: all modules
	$(GO) test -timeout 60m -run '^$$' -bench . -skip Table -benchmem ./test/bench ./host/policy/... ./host/sandbox ./host/remote ./host/audit ./host/store ./host/front/http

# The official MCP conformance suite, also through a balancer before two hosts, both TypeScript clients and the inspector; needs npm and its registry once.
conformance: all
	sh test/conformance/conformance.sh

# What takes minutes: random cuts of the SSH path (nothing written twice, nothing lost in silence), instances that are called 10,000 times.
soak:
	$(GO) test -run "Survive|AmongHostile" -timeout 60m ./host/sandbox
	CAPONIER_SOAK=10000 $(GO) test -run 'UnderRandomCuts|UnderCuts' -timeout 60m -v ./host/remote ./test

# Random faults against writing clients: kills, hang-ups, cuts, failing syncs, removed journals, a full disk, steps of the clock.
chaos:
	CAPONIER_CHAOS=$${CHAOS:-3000} $(GO) test -run TestChaos -timeout 180m -count=1 -v ./test

# Two hosts, PostgreSQL and HAProxy, each killed again and again under calls.
replicas:
	CAPONIER_CALLS=$${CALLS:-2000} $(GO) test -run 'Replica|KillsOfEachPart|RedOperationsOfTwoHosts' -timeout 60m -count=1 -v ./test

# Every case of what tries a share of them with -short.
thorough: all modules keyless build/pvelab
	GOGC=400 $(GO) test -timeout 120m $$($(GO) list $(ALL) | grep -v '/caponier/test$$')

# What takes hours: CI runs short forms of all of it.
nightly: bare thorough soak chaos replicas packaging-all
	$(MAKE) fuzz FUZZTIME=10m

# What fails runs once more: at its end Go's engine can report its own deadline. What it has found is in testdata by then, and fails again.
fuzz:
	@for t in $$(grep -rl --include='*_test.go' 'func Fuzz' host client sdk plugins test keyless | xargs -n1 dirname | sort -u); do \
	  for f in $$(grep -hoE 'func (Fuzz[A-Za-z0-9_]+)' $$t/*_test.go | awk '{print $$2}'); do \
	    one() { (cd $$t && $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzzminimizetime 100x -fuzztime $${FUZZTIME:-60s} .); }; \
	    one || one || exit 1; done; done

# What is given away: see packaging/README.md. release is for both architectures and signed with KEY; dist is for this machine's. dist-check makes that
# again from a copy of the sources in another place.
VERSION ?= 0.0.0
COMMIT = $$(git rev-parse HEAD 2>/dev/null || echo unknown)
DIST = $(GO) run ./packaging/dist -version $(VERSION)
CONNECT := darwin/amd64,darwin/arm64,windows/amd64,windows/arm64,linux/amd64,linux/arm64
release:
	@test $(VERSION) != 0.0.0 && test -n "$(KEY)" || { echo 'usage: make release VERSION=1.2.3 KEY=FILE [MINISIGN_KEY=FILE] # a private OpenSSH key, or a public one whose other half an agent holds; a secret key of minisign'; exit 2; }
	@test -z "$$(git status --porcelain)" || { echo 'release: there are changes that no commit has'; exit 1; }
	$(DIST) -commit $(COMMIT) -arch amd64,arm64 -connect $(CONNECT) -out build/release
	@$(MAKE) --no-print-directory sign DIR=build/release
sign:
	@rm -f $(DIR)/SHA256SUMS.sig; ssh-keygen -q -Y sign -n file -f "$(KEY)" $(DIR)/SHA256SUMS
	@rm -f $(DIR)/SHA256SUMS.minisig; test -z "$(MINISIGN_KEY)" || minisign -S -s "$(MINISIGN_KEY)" -m $(DIR)/SHA256SUMS >/dev/null
dist:
	$(DIST) -commit $(COMMIT) -connect $(CONNECT) -out build/dist
dist-check: dist
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && commit=$(COMMIT) && \
	{ git ls-files -z --cached --others --exclude-standard; printf 'plugins.lock\0'; } | sort -zu | xargs -0 cp --parents -t "$$dir" && \
	(cd "$$dir" && $(DIST) -commit "$$commit" -connect $(CONNECT) -out dist >/dev/null) && \
	diff -r build/dist "$$dir/dist" && (cd build/dist && sha256sum -c --quiet SHA256SUMS) && echo "the same bytes twice"

# The tools and schemas of those who take the files, and the commands of VERIFY.md; needs npm, the Go module proxy and shellcheck.
packaging: dist
	sh test/packaging/lint.sh
	sh test/packaging/verify.sh

# Also the same bytes twice, the package on a clean root (needs mmdebstrap), and the walks of the docs in the unpacked archive.
packaging-all: dist-check packaging
	sh test/packaging/cleanroot.sh
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && tar -xzf build/dist/caponier-*.tar.gz -C "$$dir" --strip-components=1 && \
	WALK_ROOT=$$dir $(GO) test -run TestWalks -count=1 ./test

# The docs as static pages with references and a search, in build/site: open build/site/index.html. A
# link that leads nowhere ends it.
site: build/caponier
	$(GO) -C packaging/tools run ./site -root ../.. -out ../../build/site

# Debian's codespell over what people read.
spelling:
	@command -v codespell >/dev/null || { echo 'spelling: codespell is needed (apt-get install codespell)'; exit 2; }
	codespell $$(git ls-files '*.md' config.toml packaging/caponier.service)

clean:
	rm -rf build
