# Every target sets up first what it needs; the second time that takes no time. `make` alone lists
# them. Settings are environment variables: BRIDGE_PORT=9443 make run. More words for a command:
# make qr ARGS="--format url".

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help run watch hooks doctor qr admin backup upgrade uninstall \
	test test-slow repeat test-agents test-web soak mac-check bench lint setup clean

# The newest Python that the pins were installed on and that can make an environment; any newer one
# is a last resort.
bootstrap = @for python in python3.13 python3.12 python3.11 python3; do \
	"$$python" -c "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))" 2>/dev/null && \
	exec "$$python" bridge_project/operations/setup.py $(1); \
	done; echo "Python 3.11 or newer, with venv, is needed: install the packages python3.11 and" \
	"python3.11-venv (Debian: apt install python3 python3-venv)." >&2; exit 1

help: ## this list
	@sed -n 's/^\([a-z][a-z-]*\): ## \(.*\)/  make \1\t\2/p' Makefile

run: ## start the bridge (sets everything up on first use)
	$(call bootstrap,manage serve $(ARGS))

watch: ## a device in the terminal: see what arrives
	$(call bootstrap,manage watch $(ARGS))

hooks: ## connect the coding agent on this machine
	$(call bootstrap,manage install_hooks $(ARGS))

doctor: ## what works, what does not, and the command that fixes it
	$(call bootstrap,manage doctor $(ARGS))

qr: ## pair a phone: a new QR code, good for ten minutes
	$(call bootstrap,manage mint_pairing_qr $(ARGS))

admin: ## make a user of the admin site
	$(call bootstrap,manage make_admin $(ARGS))

backup: ## save database, secrets, certificates and settings in one file (ARGS=WHERE)
	$(call bootstrap,manage backup $(ARGS))

upgrade: ## after git pull: requirements, a copy of the database, migrations, restart of the service
	$(call bootstrap,manage upgrade $(ARGS))

uninstall: ## take out the hooks and services; the data is kept unless you say otherwise
	$(call bootstrap,manage uninstall $(ARGS))

test: ## linters, import rules and the everyday tests
	$(call bootstrap,check test $(ARGS))

test-slow: ## slow tests: a fresh clone, full disks, two kills at once, clock jumps …
	$(call bootstrap,check test-slow $(ARGS))

repeat: ## the tests twenty times, every other time on a busy machine (ARGS=4: so often)
	$(call bootstrap,check repeat $(or $(ARGS),20))

test-agents: ## the bridge with ten real agents (no account; what was not tried is said)
	$(call bootstrap,check test-agents $(ARGS))

test-web: ## the web client in a real browser (needs Debian's chromium-driver)
	$(call bootstrap,check test-web $(ARGS))

soak: ## the long tests: thousands of kills, and more (ARGS="--instants 200": only so many kills)
	$(call bootstrap,check soak $(ARGS))

mac-check: ## what somebody with a Mac runs: it prints all that we need to know
	$(call bootstrap,check mac-check $(ARGS))

bench: ## measure it, docs/performance.md says how (ARGS="events hookwait" for some parts)
	$(call bootstrap,check bench $(ARGS))

lint: ## linters, types and import rules only
	$(call bootstrap,check lint)

setup: ## the virtual environment only
	$(call bootstrap,setup)

clean: ## remove the virtual environment and caches, never the bridge's data
	rm -rf .venv .agents .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
