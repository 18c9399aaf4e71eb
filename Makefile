# make help lists the targets. The commands are pure Go; only the race detector needs a C compiler.
SHELL        := /bin/sh
export CGO_ENABLED := 0
VERSION      ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
GOLANGCI     := 2.15.0
RCLONE       := v1.75.1
RESTIC       := v0.18.1
MINIO        := v0.0.0-20260212201848-7aac2a2c5b7c
LDFLAGS      := -s -w -X main.version=$(VERSION)
PROGRAMS     := codefleet worker ingest mcp-bridge
# Root can run the real sandbox, so its tests must not be skipped.
REQUIRE_GVISOR := $(if $(filter 0,$(shell id -u)),1,)

# With two jobs, the modules of one build are downloaded while another build compiles.
MAKEFLAGS += --jobs=2

.DEFAULT_GOAL := help
.PHONY: help build programs cross demo test test-integration bench yardsticks lint fmt tools clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: programs bin/runsc ## build bin/codefleet, bin/worker, bin/ingest, bin/mcp-bridge, bin/runsc

programs:
	@echo "build $(PROGRAMS:%=bin/%) (about three minutes the first time)"
	@go build -ldflags '$(LDFLAGS)' -o bin/ $(PROGRAMS:%=./cmd/%)

.PHONY: image release
image release: export GOFLAGS += -trimpath # elsewhere it would have everything compiled twice
image: build ## build the container image codefleet:latest (needs docker; BASE selects the base image)
	docker build -t codefleet:latest -t codefleet:$(VERSION) -f deploy/Dockerfile $(if $(BASE),--build-arg BASE=$(BASE)) .

release: build ## pack the programs, deploy/ and the licence into .cache/release, with a checksum
	@rm -rf .cache/release && mkdir -p .cache/release/codefleet-$(VERSION)
	@cp -r bin deploy LICENSE README.md config.example.yaml .cache/release/codefleet-$(VERSION)/
	@rm -rf .cache/release/codefleet-$(VERSION)/deploy/compose/secrets .cache/release/codefleet-$(VERSION)/deploy/*_test.go
	@cd .cache/release && tar --sort=name --owner=0 --group=0 --mtime=@0 -czf codefleet-$(VERSION)-linux-$$(go env GOARCH).tar.gz codefleet-$(VERSION)
	@cd .cache/release && rm -r codefleet-$(VERSION) && sha256sum *.tar.gz | tee SHA256SUMS

# The sandbox engine must be static: built with cgo, it does not start.
bin/runsc: tools/go.mod tools/go.sum
	@echo "build $@ (gVisor; about a minute the first time)"
	@go build -C tools -trimpath -ldflags '-s -w' -o ../$@ gvisor.dev/gvisor/runsc
	@touch $@

demo: build ## start a fleet in a fresh directory, run tasks three ways, stop the fleet
	@./examples/demo.sh

# -p 2, because each package starts its own servers and sandboxes. GORACE, so that processes exit without waiting a
# second for late race reports.
test: bin/runsc ## run all tests with the race detector (needs a C compiler; under 6 minutes on two cores with a warm cache)
	CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 CODEFLEET_REQUIRE_GVISOR=$(REQUIRE_GVISOR) go test -race -shuffle=on -p 2 -timeout 30m ./...

test-integration: bin/runsc .cache/npm/done .cache/science/done .cache/pypdf/done .cache/minio /usr/bin/chromium ## run tests with MCP servers from npm (needs node and npm), MinIO, and Debian's Chromium, pandas, matplotlib and pypdf; fail instead of skipping
	CODEFLEET_TEST_MINIO=$(CURDIR)/.cache/minio CODEFLEET_TEST_NO_SKIP=1 CODEFLEET_LONG_TESTS=1 \
		go test -count=1 -p 1 -timeout 20m -run 'MinIO|Objects|Store|Probe|Heads' ./internal/state/... ./internal/assembly/...
	CODEFLEET_TEST_NPM=$(CURDIR)/.cache/npm CODEFLEET_TEST_SCIENCE=$(CURDIR)/.cache/science CODEFLEET_TEST_PYPDF=$(CURDIR)/.cache/pypdf CODEFLEET_TEST_NO_SKIP=1 CODEFLEET_REQUIRE_GVISOR=$(REQUIRE_GVISOR) \
		go test -count=1 -p 1 -timeout 20m -run 'Real|Pyright|Integration' ./internal/tools/toolstest ./internal/bridge ./cmd/codefleet

.PHONY: test-alerts
test-alerts: .cache/prometheus/done ## test alert rules and dashboard with Debian's Prometheus (on Debian; it is not installed)
	CODEFLEET_TEST_PROMETHEUS=$(CURDIR)/.cache/prometheus/usr/bin CODEFLEET_TEST_NO_SKIP=1 go test -count=1 -timeout 5m ./test/deploy

.PHONY: test-helm
test-helm: ## render the Helm chart and check it against the types of Kubernetes and KEDA (minutes the first time)
	go test -C test/deploy/helm -count=1 ./...

.cache/prometheus/done:
	@rm -rf .cache/prometheus && mkdir -p .cache/prometheus
	@cd .cache/prometheus && { apt-get download -qq prometheus || { apt-get update -qq && apt-get download -qq prometheus; }; } && dpkg -x prometheus_*.deb . && touch done

# The last open-source MinIO (AGPL): a server to test against, never linked.
.cache/minio: tools/build-at.sh Makefile
	@tools/build-at.sh $@ github.com/minio/minio $(MINIO)

.cache/npm/done: internal/tools/toolstest/npm/install.sh
	@echo "install the MCP servers and pyright into .cache/npm"
	@internal/tools/toolstest/npm/install.sh $(CURDIR)/.cache/npm
	@touch $@

.cache/science/done: tools/science.sh
	@echo "download Debian's pandas and matplotlib into .cache/science"
	@tools/science.sh $(CURDIR)/.cache/science

.cache/pypdf/done:
	@rm -rf .cache/pypdf && mkdir -p .cache/pypdf
	@cd .cache/pypdf && { apt-get download -qq python3-pypdf || { apt-get update -qq && apt-get download -qq python3-pypdf; }; } && dpkg -x python3-pypdf_*.deb . && touch done

# Debian's Chromium, for the tests of the web page. CHROMIUM names another one.
/usr/bin/chromium:
	@$(if $(CHROMIUM),,echo "install chromium" && export DEBIAN_FRONTEND=noninteractive && \
		{ apt-get install -y -qq chromium || { apt-get update -qq && apt-get install -y -qq chromium; }; } >/dev/null)

cross: ## compile the client side for other systems
	@set -e; for target in darwin/arm64 linux/arm64; do \
		echo "build codefleet, ingest, mcp-bridge, client for $$target"; \
		GOOS=$${target%/*} GOARCH=$${target#*/} go build -o .cache/cross/ ./cmd/codefleet ./cmd/ingest ./cmd/mcp-bridge; \
		GOOS=$${target%/*} GOARCH=$${target#*/} go build ./client; \
	done

# These tests run in an emulated machine with /dev/kvm, which msb needs. Emulation is slow. RUN selects tests.
MICROVM ?= $(CURDIR)/.cache/microvm
RUN     ?= .
.PHONY: examples
examples: build ## run all examples on a fresh fleet, with a summary; MCP_MODE=true runs them as MCP clients
	@go build -o .cache/examples/ ./examples/go ./examples/plugin
	@EXAMPLES_GO=.cache/examples/go EXAMPLES_PLUGIN=.cache/examples/plugin CODEFLEET_BIN=$(CURDIR)/bin/codefleet CODEFLEET_FLEET= CODEFLEET_URL= CODEFLEET_DATA=$(CURDIR)/.cache/examples \
		python3 examples/run_all_examples.py

# The packages are built and installed without an index: the build backend is in the tree, and there is no dependency.
.PHONY: python
python: ## build wheel and source distribution of the Python package in .cache/python, and install it in a fresh environment
	@rm -rf .cache/python && mkdir -p .cache/python/dist && python3 -m venv .cache/python/venv
	@cd clients/python && python3 -B -c 'import build_backend; print(build_backend.build_sdist("$(CURDIR)/.cache/python/dist"))'
	@cd .cache/python && for package in dist/*.tar.gz $(CURDIR)/clients/python; do \
		PIP_NO_INDEX=1 venv/bin/pip wheel -q --no-deps -w dist $$package; \
		PIP_NO_INDEX=1 venv/bin/pip install -q --force-reinstall dist/*.whl; done
	@.cache/python/venv/bin/python -B -c 'from code_execution_mcp import create_agent, execute_task; print("installed")'
	@.cache/python/venv/bin/code-execution-mcp-server --help >/dev/null

.PHONY: test-microsandbox
test-microsandbox: $(MICROVM)/built ## test the microsandbox driver with the real msb in an emulated machine (Debian, root; an hour on two cores)
	@rm -rf $(MICROVM)/job && mkdir -p $(MICROVM)/job && cp test/microvm/job $(MICROVM)/job/run && echo '$(RUN)' >$(MICROVM)/job/run.pattern
	go test -c -o $(MICROVM)/job/microsandbox.test ./internal/executor/microsandbox
	cp test/microvm/fleet $(MICROVM)/job/ && go build -o $(MICROVM)/job/codefleet ./cmd/codefleet
	test/microvm/run.sh $(MICROVM) $(MICROVM)/job

.PHONY: test-cgroup2
test-cgroup2: RUN = TestProbe$$|TestMemoryLimit|TestCPULimit|TestContract$$
test-cgroup2: $(MICROVM)/built bin/runsc ## test the gVisor driver's limits with cgroups v2 in the emulated machine (half an hour)
	@rm -rf $(MICROVM)/job && mkdir -p $(MICROVM)/job && cp test/microvm/job-gvisor $(MICROVM)/job/run && cp bin/runsc $(MICROVM)/job/ && echo '$(RUN)' >$(MICROVM)/job/run.pattern
	go test -c -o $(MICROVM)/job/gvisor.test ./internal/executor/gvisor
	test/microvm/run.sh $(MICROVM) $(MICROVM)/job

$(MICROVM)/built: test/microvm/build.sh test/microvm/init test/microvm/init.ram
	test/microvm/build.sh $(MICROVM)

# make passes its command-line variables to the test. Give the key on the command line only.
# Each line of CHAOS is a number of NATS servers, of replicas, and an ack wait. Without FOR all tasks are submitted.
.PHONY: chaos
chaos: TASKS = 2000
chaos: FOR = 0
chaos: CHAOS = 1,1,2s 1,1,30s 3,1,2s 3,1,30s 3,3,2s 3,3,30s
chaos: bin/runsc ## inject faults into fleets while they run TASKS tasks each, and compare what they did (root; hours, or FOR=5m each)
	@failed=0; for c in $(CHAOS); do set -- $$(echo $$c | tr , ' '); \
		go test ./internal/faulttest -count=1 -run 'Chaos$$' -v -timeout 4h -args -chaos.tasks $(TASKS) -chaos.for $(FOR) \
			-chaos.nodes $$1 -chaos.replicas $$2 -chaos.ack-wait $$3 || failed=1; \
	done; exit $$failed

.PHONY: node-loss
node-loss: LOSSES = 9
node-loss: ## lose the servers of a cluster in turn, with their disks, while tasks are submitted (minutes)
	go test ./internal/faulttest -count=1 -run 'NodeLoss$$' -v -timeout 2h -args -losses $(LOSSES)

# The old build is made from the commit FROM.
.PHONY: test-upgrade
FROM ?= HEAD~1
test-upgrade: build ## restart every part of a fleet under load, with the build of commit FROM and with this one (root; minutes)
	@rm -rf .cache/upgrade && mkdir -p .cache/upgrade/src && git archive $(FROM) | tar -x -C .cache/upgrade/src
	go build -C .cache/upgrade/src -ldflags '-s -w -X main.version=$(FROM)' -o $(CURDIR)/.cache/upgrade/bin/ $(PROGRAMS:%=./cmd/%)
	go test ./internal/faulttest -count=1 -run 'TestUpgrade$$' -v -timeout 20m -args \
		-upgrade.from $(CURDIR)/.cache/upgrade/bin -upgrade.to $(CURDIR)/bin

.PHONY: chaos-workflows
chaos-workflows: RUNS = 200
chaos-workflows: bin/runsc ## kill workers, NATS and S3 while RUNS workflows run, and compare what their steps did (root; about ten minutes; SEED repeats a run)
	go test ./internal/faulttest -count=1 -run 'TestWorkflowFaults$$' -v -timeout 2h -args -faults.runs $(RUNS) -faults.seed $(or $(SEED),0)

.PHONY: record-wire
record-wire: ## record the responses of a model endpoint: SERVER="name version" BASE_URL=… MODEL=… KEY=… (internal/openai/testdata/README.md)
	@CODEFLEET_RECORD_WIRE=1 go test -count=1 -v -run 'TestRecordWire/$(RUN)' ./internal/openai

bench: build yardsticks ## measure the fleet's promised numbers and its comparisons on this machine
	bin/codefleet bench
	go run ./test/bench

.PHONY: bench-queues
bench-queues: ## compare the queue with asyncjobs, River and Asynq (on Debian with postgresql and redis-server; minutes the first time)
	go run -C test/queues .

# test/bench compares the fleet with these tools.
yardsticks: .cache/yardsticks/rclone .cache/yardsticks/restic ## install the tools for test/bench: rclone, restic (minutes the first time)

.cache/yardsticks/rclone: tools/build-at.sh Makefile
	@tools/build-at.sh $@ github.com/rclone/rclone $(RCLONE)

.cache/yardsticks/restic: tools/build-at.sh Makefile
	@tools/build-at.sh $@ github.com/restic/restic $(RESTIC) github.com/restic/restic/cmd/restic

lint: .bin/golangci-lint ## check formatting, vet, linters, import rules and go.mod
	.bin/golangci-lint config verify
	.bin/golangci-lint fmt --diff
	.bin/golangci-lint run
	go mod tidy -diff
	go test ./internal/arch

fmt: .bin/golangci-lint ## format the code
	.bin/golangci-lint fmt

tools: .bin/golangci-lint ## install the pinned linter into .bin (minutes the first time)

.bin/golangci-lint: Makefile
	@echo "install golangci-lint $(GOLANGCI) into .bin (minutes the first time)"
	@GOBIN=$(CURDIR)/.bin go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v$(GOLANGCI)
	@touch $@

clean: ## remove build results and caches
	rm -rf bin .bin .cache
