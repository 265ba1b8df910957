# Make without a target lists the targets.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PART := 1/1

# Debian and Ubuntu packages that kplab calls, each by the file that shows it is there.
TOOLS := qemu-system-x86:/usr/bin/qemu-system-x86_64 kmod:/sbin/depmod debian-archive-keyring:/usr/share/keyrings/debian-archive-keyring.gpg
# What kind clusters need besides.
KIND_TOOLS := docker.io:/usr/sbin/dockerd runc:/usr/sbin/runc mmdebstrap:/usr/bin/mmdebstrap util-linux:/usr/bin/nsenter
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: build ## run every scenario in every mode and show the matrix (kplab run)
	./kplab run

.PHONY: test
test: build ## unit tests, real kernels in namespaces and in VMs, sabotage, kill -9
	./kplab proxies --fetch 1.37.2
	# One package at a time: two VMs at once on two cores would spoil each other's deadlines. Static, as a VM's init must be.
	KPLAB_TEST_VM=1 CGO_ENABLED=0 go test -p 1 -count=1 -timeout 40m ./...

.PHONY: test-quick
test-quick: ## the tests that need neither a VM nor a kube-proxy
	go test ./...

.PHONY: test-race
test-race: ## the quick tests with the race detector (needs a C compiler)
	go test -race -p 1 ./...

.PHONY: selftest
selftest: build ## break every cell of this kernel on purpose and demand that its verdict turns (kplab selftest)
	./kplab selftest --kernel host --mode iptables,nftables

.PHONY: repeat
repeat: build ## every cell of this kernel 50 times: no verdict may change; more than an hour on 2 cores, so in PART=i/n of it
	./kplab run --kernel host --mode iptables,nftables --repeat 50 --shard $(PART)

.PHONY: matrix
matrix: build ## every scenario on the host, 5.10, 6.1 and 6.12, with the oldest and the newest kube-proxy
	./kplab run --kernel auto,debian-11,debian-12,debian-13 --kube-proxy 1.33.13,1.37.2

.PHONY: kind
kind: build kind-tools ## every scenario on kind clusters, beside the namespaces; starts two container engines of the lab, each in a network namespace of its own
	./kplab kind engine --count 2
	./kplab run --mode iptables,nftables --kernel host --substrate netns,kind

.PHONY: kind-vm
kind-vm: build kind-tools ## ipvs mode on a kind cluster inside a VM of kernel 6.1: minutes with KVM, 19 to 33 without
	./kplab kind engine
	./kplab run nodeport-localhost nodeport-secondary-address stale-kube-ipvs0 --mode ipvs --kernel debian-12 --substrate kind

.PHONY: test-browser
test-browser: browser-tools ## the report's page in a headless Chromium: filters, cells, plots, a phone's width
	KPLAB_TEST_BROWSER=1 go test -count=1 -run TestBrowser ./results/report

.PHONY: test-kind
test-kind: build kind-tools ## the kind tests: a real cluster; starts a container engine if none answers
	./kplab kind engine
	KPLAB_TEST_KIND=1 CGO_ENABLED=0 go test -p 1 -count=1 -timeout 40m -v -run "TestKind|TestWrite|TestLimit|TestCap" ./cmd/kplab ./kindcluster/...

.PHONY: bench
bench: build ## time one cell and the making of an env, and kube-proxy in a quick shape (kplab bench --quick)
	go test -run '^$$' -bench . -count 5 ./netns ./bench
	./kplab bench --quick

# One endpoint: a first packet does not care, and nftables mode's first sync with more of them takes minutes at this size. iptables-restore
# 1.8.9 has not programmed 30,000 Services after a quarter of an hour.
BLOG := --endpoints 1 --count 6 --samples 2000
.PHONY: bench-blog
bench-blog: build ## the Kubernetes blog's chart in the modes that this kernel can run: first-packet latency at 5,000, 10,000 and (nftables mode) 30,000 Services; about 12 minutes
	./kplab bench connect --services 5000,10000 $(BLOG) --kernel host
	./kplab bench connect --services 30000 --mode nftables $(BLOG) --kernel host

.PHONY: bench-blog-vm
bench-blog-vm: build ## the same in all three modes, in one VM (only with KVM: emulated, ipvs mode's first sync alone takes hours)
	./kplab bench connect --services 5000,10000 $(BLOG) --kernel debian-12

.PHONY: bench-published
bench-published: build ## sync at sizes that others have published, with each minor version: 10,000 Services of 2 endpoints, 44,000 of 1, one of 100,000
	./kplab bench sync --mode iptables,nftables --kernel host --services 10000 --endpoints 2 --count 3 --kube-proxy 1.33.13,1.34.4,1.35.4,1.36.3,1.37.2
	./kplab bench sync --mode nftables --kernel host --services 44000 --endpoints 1 --count 3 --kube-proxy 1.33.13,1.34.4,1.35.4,1.36.3,1.37.2
	./kplab bench sync --mode nftables --kernel host --services 1 --endpoints 100000 --count 3 --kube-proxy 1.33.13,1.34.4,1.35.4,1.36.3,1.37.2

.PHONY: fuzz
fuzz: ## fuzz the script parser and the manifest decoder, a minute each
	go test -run '^$$' -fuzz FuzzParse -fuzztime 60s ./lab/script
	go test -run '^$$' -fuzz FuzzDecode -fuzztime 60s ./lab/manifest

.PHONY: lint
lint: ## gofmt, go vet, staticcheck, actionlint
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "gofmt would change these"; exit 1; }
	go vet ./...
	go run $(STATICCHECK) ./...
	go run $(ACTIONLINT)

.PHONY: build
build: tools ## build ./kplab (static: it is also the init of its VMs)
	CGO_ENABLED=0 go build -o kplab ./cmd/kplab

# install PACKAGES whose files are missing, and only those: $(call install,PACKAGE:FILE ...)
define install
	@missing=; for t in $(1); do test -e $${t#*:} || missing="$$missing $${t%%:*}"; done; \
	test -z "$$missing" && exit 0; \
	if ! command -v apt-get >/dev/null; then echo "install the equivalents of these Debian packages:$$missing"; exit 2; fi; \
	sudo=; test $$(id -u) = 0 || sudo=sudo; echo "installing:$$missing"; \
	$$sudo apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$sudo apt-get install -y -qq --no-install-recommends $$missing
endef

.PHONY: tools
tools:
	@command -v go >/dev/null || { echo "go is missing: install Go 1.26 or later, https://go.dev/doc/install"; exit 2; }
	$(call install,$(TOOLS))

.PHONY: kind-tools
kind-tools:
	$(call install,$(KIND_TOOLS))

.PHONY: browser-tools
browser-tools:
	@command -v chromium chromium-browser google-chrome >/dev/null || { $(call install,chromium:/usr/bin/chromium); }

.PHONY: clean
clean: ## remove the cached kernels, userlands and kube-proxies, and the binary
	test ! -x kplab || ./kplab clean
	rm -f kplab
