# Everything that is done to this repository by a command. Bare `make` lists the targets.

GO ?= go
LINT = $(GO) tool -modfile=tools/lint/go.mod golangci-lint

FUZZTIME ?= 10s
BENCH ?= .
TIERBENCH ?= .
ROUNDS ?= 50
SEEDS ?= 200
RIGS ?= ../shared/rigs
VOLUME ?= 2147483648
AWAY ?= 10m

.DEFAULT_GOAL := help

##@ People
.PHONY: help
help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { printf "%s%s\n", sep, substr($$0, 5); sep = "\n" } \
		/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: build ## build the broker and start it on 127.0.0.1:9092, data in ./tidemark-data
	bin/tidemark dev

.PHONY: build
build: ## build bin/tidemark
	$(GO) build -trimpath -o bin/tidemark ./cmd/tidemark

.PHONY: test
test: need stores ## install what the tests need, then run them all
	TIDEMARK_NEED_S3=1 $(GO) test ./...

##@ Before a commit
.PHONY: check
check: format lint tidy unit race ## format, lint, tidy, unit, race

.PHONY: format
format: ## fail where the formatters would change a file (make fmt changes it)
	$(LINT) fmt --diff

.PHONY: fmt
fmt: ## format all files
	$(LINT) fmt

.PHONY: lint
lint: ## run golangci-lint (its first build takes two minutes), and build for a laptop with macOS
	$(LINT) run ./...
	GOOS=darwin GOARCH=arm64 $(GO) build -o /dev/null ./cmd/tidemark

.PHONY: tidy
tidy: ## hold the repository to docs/architecture.md
	$(GO) run ./cmd/tidy -sizes
	$(GO) mod verify

.PHONY: unit
unit: ## run the tests, nothing installed
	$(GO) test ./...

.PHONY: race
race: ## run the tests under the race detector, the long ones in short
	$(GO) test -race -short -timeout 20m ./...

##@ Longer
.PHONY: cover
cover: ## measure the tests' coverage: bin/cover.html
	@mkdir -p bin
	$(GO) test -coverprofile=bin/cover.out ./...
	$(GO) tool cover -html=bin/cover.out -o bin/cover.html
	@$(GO) tool cover -func=bin/cover.out | tail -1

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (10s)
	scripts/fuzz $(FUZZTIME)

.PHONY: sim
sim: ## run SEEDS (200) seeds of the simulator, 5000 in about half an hour
	$(GO) test -count=1 -timeout 4h ./broker/sim -seeds=$(SEEDS)

.PHONY: mutants
mutants: ## break the code in each way of cmd/mutants/mutants.txt: a test has to notice
	$(GO) run ./cmd/mutants

.PHONY: crash
crash: build ## kill a broker ROUNDS (50) times in mid-append, damage its files, fill its disk
	$(GO) test -count=1 -v -timeout 30m ./deploy/crash -broker $(CURDIR)/bin/tidemark -rounds $(ROUNDS) -commits 2000000

.PHONY: tier
tier: build stores need ## read VOLUME (2 GiB) bytes back from MinIO by every consumer, stop it for AWAY (10m) under load; 6 GB of disk
	$(GO) test -count=1 -v -timeout 2h ./deploy/crash -run 'FromTheStore|StoreIsAway|LeavesTheBucket|AloneIsEnough' -broker $(CURDIR)/bin/tidemark \
		-volume $(VOLUME) -away $(AWAY) -kafka="$(abspath $(wildcard $(RIGS)/apache-kafka/kafka.sh))"

.PHONY: malformed
malformed: ## send malformed requests to a broker for a minute
	$(GO) test -count=1 -v -run Malformed ./broker -malformed 1m

.PHONY: bench
bench: ## run the benchmarks that match BENCH (all)
	$(GO) test -run '^$$' -bench '$(BENCH)' ./...

.PHONY: tier-bench
tier-bench: build stores ## measure remote reads and uploads over MinIO beside plain gets and puts: TIERBENCH (all)
	$(GO) test -run '^$$' -bench '$(TIERBENCH)' -benchtime 1x -timeout 1h ./deploy/tierbench -broker $(CURDIR)/bin/tidemark

.PHONY: e2e
e2e: build need ## compare Kafka's command line tools on this broker with their recorded output
	deploy/e2e/run

.PHONY: e2e-record
e2e-record: need ## start Apache Kafka and record the output of its tools anew
	deploy/e2e/run record

.PHONY: peers
peers: build rigs ## compare with Apache Kafka by the rigs in RIGS (../shared/rigs)
	@scripts/need kcat python3 javac mvn
	$(GO) run ./peers -rigs $(RIGS) -broker bin/tidemark

.PHONY: peers-full
peers-full: build rigs ## the same with all client suites, most of an hour (librdkafka's builds, too)
	@scripts/need kcat python3 javac mvn /usr/include/rapidjson/document.h
	$(GO) run ./peers -rigs $(RIGS) -broker bin/tidemark -suites all

.PHONY: rigs
rigs:
	@test -d $(RIGS) || { echo 'no rigs in $(RIGS): see CONTRIBUTING.md, or name their folder by RIGS=DIR' >&2; exit 1; }

.PHONY: need
need: # tools that tests call
	@scripts/need kcat strace jq python3 zstd

.PHONY: stores
stores: # S3 servers that tests start, built once and kept in ~/.cache/tidemark
	@scripts/minio install
	@scripts/versitygw install

.PHONY: clean
clean: ## remove what was built
	rm -rf bin
