"""List the commands that rules understand, and the files that none covers (D68).

Default is deny: a program, an option, or an operand that no row has asks. To add one, add a row,
and its neighbours to tests/fixtures/rules.toml. Pure.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from sessions_app.approvals.tool_call import DIRECTORIES


class Row(NamedTuple):
    """Describe what a program may be given.

    ``options``: a pattern of whole words that begin with "-". ``values``: options that take the
    next word, or the rest of theirs after "=", as a plain value, never a path; ``places``: the same
    for a path. ``first``: what the operands before the paths must look like, one pattern each.
    ``paths``: whether files or directories follow; False: nothing. ``contents``: reads the files
    below a directory; ``follows``: and the links there. ``behind``: what may stand behind a path.
    """

    options: str = r"(?!)"
    values: str = r"(?!)"
    places: str = r"(?!)"
    first: Sequence[str] = ()
    paths: bool = True
    contents: bool = False
    follows: bool = False
    behind: str = ""


_ANY = r".*"  # a pattern or an expression: never opened, never run
_NAME = r"[\w][\w.:-]*"
_GREP = Row(
    r"-[inrlLcwoxvEFPHhsqa]+|-[ABC]\d+|-m\d+|--color(=never|=auto)?|--(line-number|ignore-case)"
    r"|--context=\d+",  # on a Mac the next word would be the pattern
    r"-[ABCm]|--(include|exclude|exclude-dir|max-count)",
    first=(_ANY,),
    contents=True,
)

# What reads, below the session's directory: program, or program and subcommand → a row.
READS: Final[dict[str, Row]] = {
    "cat": Row(r"-[nbsAETv]+"),
    "head": Row(r"-\d+|-[qv]|-[nc]\d+", r"-[nc]|--(lines|bytes)"),
    "tail": Row(r"-\d+|-[qv]|-[nc]\+?\d+", r"-[nc]|--(lines|bytes)"),
    "wc": Row(r"-[lwcmL]+"),
    "ls": Row(r"-[lahtrRS1dFAGgios]+|--color(=never|=auto)?|--(all|almost-all|recursive)"),
    "tree": Row(r"-[adfshCDpugi]+", r"-[LIP]"),
    "du": Row(r"-[shackbm]+", r"-d|--max-depth"),
    "stat": Row(),
    "file": Row(r"-b"),
    "basename": Row(),
    "dirname": Row(),
    "realpath": Row(),
    "diff": Row(r"-[uqrbwBiN]+|-U\d+|--(brief|stat|unified)", contents=True, follows=True),
    "cmp": Row(r"-[ls]"),
    "sort": Row(r"-[nrufhVb]+|-k\d+(,\d+)?", r"-k"),
    "uniq": Row(r"-[cdui]+", paths=False),
    "cut": Row(r"-d.|-[fcb][\d,-]+|-s", r"-[dfcb]"),
    "tr": Row(r"-[dscC]+", first=(_ANY, _ANY), paths=False),
    "nl": Row(r"-[ba]+"),
    "column": Row(r"-t", paths=False),
    "md5sum": Row(),
    "sha256sum": Row(),
    "grep": _GREP,
    "egrep": _GREP,
    "fgrep": _GREP,
    "rg": Row(
        r"-[inlcwoxvFSs]+|-[ABCm]\d+|--(files-with-matches|count|line-number|no-heading)",
        r"-[ABCmtT]|--(type|max-count|context|color)",
        first=(_ANY,),
        contents=True,
    ),
    "sed": Row(r"-n", first=(r"\d+(,(\d+|\$))?p",)),
    "pwd": Row(r"-P", paths=False),
    "date": Row(r"-u|-I\w*|\+.*", first=(r"\+.*",), paths=False),
    "whoami": Row(paths=False),
    "uname": Row(r"-[asrm]+", paths=False),
    "which": Row(first=(_NAME,), paths=False),
    "git status": Row(
        r"-[sbuv]+|--(short|branch|porcelain(=v?[12])?|untracked-files(=\w+)?|ignored)"
    ),
    "git log": Row(
        r"-\d+|-n\d+|-p|--(oneline|stat|graph|all|decorate(=\w+)?|name-only|name-status|patch"
        r"|follow|merges|no-merges|reverse|no-color|first-parent|shortstat|abbrev-commit)",
        r"-[nSG]|--(max-count|since|until|after|before|author|grep|format=(?!.*%G)|pretty=(?!.*%G)"
        r"|date)",
    ),
    "git diff": Row(
        r"-[wb]|-U\d+|--(cached|staged|stat|name-only|name-status|numstat|shortstat|no-color"
        r"|check|word-diff|summary|color-words)",
        r"--(diff-filter|unified)",
    ),
    "git show": Row(
        r"-s|-U\d+|--(stat|name-only|name-status|oneline|no-color|no-patch|shortstat)",
        r"--(format=(?!.*%G)|pretty=(?!.*%G))",
    ),
    "git blame": Row(r"-[wse]|-L\d+,\+?\d+", r"-L"),
    "git branch": Row(r"-[avr]+|-vv|--(show-current|all|list|remotes|no-color)", paths=False),
    "git tag": Row(r"-l|--list", paths=False),
    "git remote": Row(paths=False),
    "git rev-parse": Row(r"--(short|abbrev-ref|show-toplevel|is-inside-work-tree|verify|git-dir)"),
    "git ls-files": Row(r"-[mocd]|--(others|modified|cached|deleted|exclude-standard)"),
    "git stash list": Row(paths=False),
    "git describe": Row(r"--(tags|always|dirty|long|all)", paths=False),
    "npm ls": Row(r"--(all|prod|json)|--depth=\d+", r"--depth", paths=False),
    "pip list": Row(r"--format=\w+", paths=False),
    "pip freeze": Row(paths=False),
    "docker ps": Row(r"-[aq]+", paths=False),
    "docker images": Row(r"-[aq]+", paths=False),
}
# what these are not given they read from a pipe
FILTERS: Final = frozenset({
    *("cat", "head", "tail", "wc", "sort", "uniq", "cut", "tr", "nl", "column", "sed"),
    *("grep", "egrep", "fgrep"),
})  # fmt: skip
# find has a grammar of its own: places, then tests, none of which runs or writes
FIND_OPTIONS: Final = r"-(print|empty|not|o|a|depth|readable|executable|writable)|!"
FIND_VALUES: Final = (
    r"-(name|iname|path|ipath|type|maxdepth|mindepth|size|mtime|mmin|newer|user|regex|perm)"
)

# in the names of scripts and targets that do more than build and test
_HERE_ONLY = (
    r"(?!.*(?:install|deploy|publish|release|upload|push|ship|clean|migrate|reset|fix|write))"
)
_PYTEST = Row(
    r"-[vqxsl]+|-r\w+|-n\d+|--(lf|ff|last-failed|failed-first|co|collect-only|no-header|no-summary"
    r"|showlocals|exitfirst|stepwise|sw|quiet|verbose|disable-warnings)",
    r"-[kmn]|--(tb|maxfail|durations|timeout|dist|color|reruns)",
    behind=r"(?:::|\[).*",
)
_CARGO = Row(
    r"-[vqr]|--(release|all|workspace|all-targets|all-features|no-default-features|lib|bins|tests"
    r"|examples|no-run|no-fail-fast|quiet|verbose|locked|offline|frozen|doc|nocapture)",
    r"-[pj]|--(package|features|test|bin|example|test-threads|color)",
    first=(_NAME,),
    paths=False,
)
_GO = Row(
    r"-(v|race|short|cover|json|a|failfast)",
    r"-(run|count|timeout|p|bench|tags)",
    behind=r"\.\.\.",
)
_ENVIRONMENT = rf"{_HERE_ONLY}[\w.-]+(?:,[\w.-]+)*"
_SCRIPTS = (
    rf"{_HERE_ONLY}(?:test|build|lint|check|type-?check|types|tsc|unit|format:check)"
    r"(?:[:.-][\w:.-]+)?"
)
_NPM = Row(r"-s|--(silent|if-present|workspaces|run|coverage|ci|runInBand|verbose|watch=false)")
_NPM_RUN = _NPM._replace(first=(_SCRIPTS,))
_JS_TESTS = Row(
    r"--(run|coverage|ci|runInBand|verbose|silent|watch=false|watchAll=false|bail|no-cache|passWith"
    r"NoTests|reporter=[\w-]+)",
    r"-t|--(testNamePattern|testPathPattern|maxWorkers)",
)
_JVM_TASKS = r"(?:test|check|build|compile\w*|assemble|verify|classes|testClasses)"
_MAVEN = Row(
    r"-[qBoe]|--(no-daemon|quiet|offline|batch-mode|info|stacktrace|parallel|continue)|-DskipTests",
    r"--tests",
    first=(_JVM_TASKS,) * 4,
    paths=False,
)
# of Maven this would be a plug-in's goal, which is fetched
_GRADLE = _MAVEN._replace(first=(rf"(?::?[\w-]+:)*{_JVM_TASKS}",) * 4)
_MAKE = Row(
    r"-[ks]|-j\d*",
    r"-j",
    first=(
        rf"{_HERE_ONLY}(?:all|build|test|tests|check|lint|types|typecheck|compile|unit)(?:[-_.]\w+)*",
    )
    * 3,
    paths=False,
)

# What builds or tests: it runs whatever the files say then.
BUILDS: Final[dict[str, Row]] = {
    "make": _MAKE,
    "gmake": _MAKE,
    "ninja": Row(r"-j\d+", paths=False),
    "cmake --build": Row(r"-j\d*", r"-j|--(parallel|config)"),
    "ctest": Row(r"-[VQ]|-j\d+|--(output-on-failure|verbose)", r"-[RjL]", paths=False),
    "pytest": _PYTEST,
    "python -m pytest": _PYTEST,
    "python -m unittest": Row(r"-[vqfb]+", first=(rf"discover|{_NAME}",) * 3, paths=False),
    "tox": Row(r"-[qvp]", paths=False),
    "tox -e": Row(r"-[qvp]", first=(_ENVIRONMENT,), paths=False),
    "nox": Row(r"-r", paths=False),
    "nox -s": Row(r"-r", first=(_ENVIRONMENT,), paths=False),
    "mypy": Row(r"--(strict|pretty|no-error-summary|show-error-codes)"),
    "ruff check": Row(r"-q|--(quiet|statistics|no-cache)", r"--(select|ignore|output-format)"),
    "ruff format --check": Row(r"-q|--(quiet|diff)"),
    "black --check": Row(r"-q|--(quiet|diff)"),
    "flake8": Row(r"--(statistics|count)", r"--(select|ignore|max-line-length)"),
    "pylint": Row(r"-E", r"--(disable|enable)"),
    "pyright": Row(r"--(stats|outputjson)"),
    "prettier --check": Row(),
    "tsc": Row(r"--(noEmit|pretty|skipLibCheck|strict)|-b|--build", places=r"-p|--project"),
    "eslint": Row(r"--quiet", r"--(ext|max-warnings|format=(?:stylish|json|compact))"),
    "jest": _JS_TESTS,
    "vitest": _JS_TESTS._replace(first=(r"(?:run|--)",)),
    "mocha": Row(r"--(bail|exit|reporter=[\w-]+)", r"-g|--(grep|timeout)"),
    "rspec": Row(r"-f[dp]|--(fail-fast|color|format=\w+)", r"-e|--example"),
    "phpunit": Row(r"--(testdox|stop-on-failure)", r"--(filter|testsuite)"),
    **{
        f"{program} {how}": row
        for program in ("npm", "pnpm", "yarn", "bun")
        for how, row in (
            *(("test", _NPM), ("t", _NPM), ("build", _NPM), ("lint", _NPM)),
            *(("run", _NPM_RUN), ("run-script", _NPM_RUN)),
        )
    },
    **{f"cargo {how}": _CARGO for how in ("build", "check", "test", "clippy", "bench", "doc")},
    "cargo nextest run": _CARGO,
    "go build": _GO,
    "go test": _GO,
    "go vet": _GO,
    "mvn": _MAVEN,
    "gradle": _GRADLE,
    "./mvnw": _MAVEN,
    "./gradlew": _GRADLE,
    "dotnet build": Row(r"--no-restore", r"-c|--configuration"),
    "dotnet test": Row(r"--no-(restore|build)", r"-c|--(configuration|filter)"),
    "swift build": Row(r"-v", r"-c", paths=False),
    "swift test": Row(r"-v|--parallel", r"--filter", paths=False),
    "mix compile": Row(paths=False),
    "mix test": Row(r"--(trace|stale|failed)", r"--(seed|only)"),
    "deno test": Row(r"-q"),
    "deno check": Row(),
    "deno lint": Row(),
}
# before one of them: what runs a program of the project's own environment
BUILD_RUNNERS: Final = (("npx",), ("uv", "run"), ("poetry", "run"), ("bundle", "exec"))

# What adds to a project, or keeps it in form: only the very same command is approved again.
CHANGES: Final[frozenset[str]] = frozenset({
    *("touch", "mkdir", "cp", "mv", "ln"),
    *("git add", "git commit", "git fetch", "git pull", "git switch", "git stash push"),
    *("npm install", "npm ci", "npm i", "pnpm install", "yarn install", "bun install"),
    *("pip install", "uv sync", "uv add", "poetry install", "bundle install", "cargo add"),
    *("cargo fmt", "go mod", "go fmt", "gofmt", "black", "isort", "ruff format", "prettier"),
    *("docker compose", "composer install", "mix format", "mix deps.get"),
})  # fmt: skip

# The only parameters that a call may have besides those that its rule looks at.
COMMAND_PARAMETERS: Final = frozenset({"command", "description", "timeout", *DIRECTORIES})
READ_PARAMETERS: Final = frozenset({"file_path", "path", "absolute_path", "offset", "limit"})
EDIT_PARAMETERS: Final = frozenset({
    *("file_path", "path", "absolute_path", "notebook_path", "content", "old_string"),
    *("new_string", "replace_all", "edits", "cell_id", "cell_type", "edit_mode", "new_source"),
    "more",
})  # fmt: skip
READ_TOOLS: Final = frozenset({"Read", "NotebookRead", "LS"})
EDIT_TOOLS: Final = frozenset({"Edit", "Write", "MultiEdit", "NotebookEdit"})


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Files that builds, tools and agents run or obey, by their names or endings, and the directories
# below which everything is so. Whatever begins with a dot is, too.
_RUN_NAMES = _words(
    # JavaScript
    "package.json package.yaml package.json5 package-lock.json npm-shrinkwrap.json yarn.lock "
    "pnpm-lock.yaml pnpm-workspace.yaml bun.lock bun.lockb bunfig.toml deno.json deno.jsonc "
    "deno.lock binding.gyp lerna.json nx.json project.json workspace.json rush.json turbo.json "
    "angular.json nest-cli.json nodemon.json ember-cli-build.js mocha.opts gulpfile gruntfile "
    "setuptests.js setuptests.ts tauri.conf.json "
    # Python
    "conftest.py setup.py setup.cfg pyproject.toml tox.ini tox.toml noxfile.py pytest.ini "
    "pytest.toml mypy.ini pylintrc pylintrc.toml pyrightconfig.json ruff.toml uv.lock "
    "poetry.lock pdm.lock pixi.toml pylock.toml hatch.toml hatch_build.py pdm_build.py "
    "environment.yml sitecustomize.py usercustomize.py manage.py fabfile.py dodo.py conf.py "
    "mkdocs.yml alembic.ini sconstruct sconscript wscript pytest.py unittest.py versioneer.py "
    # Rust, Go, C, C++, Swift, Zig
    "cargo.toml cargo.lock build.rs rust-toolchain rust-toolchain.toml makefile.toml cross.toml "
    "trunk.toml go.mod go.sum go.work go.work.sum magefile.go gnumakefile bsdmakefile "
    "makefile.am makefile.in configure configure.ac cmakelists.txt cmakepresets.json "
    "cmakeuserpresets.json meson.build meson_options.txt meson.options kbuild kconfig "
    "conanfile.txt vcpkg.json xmake.lua premake5.lua tupfile.lua package.swift package.resolved "
    "build.zig build.zig.zon "
    # Java, .NET
    "pom.xml mvnw gradlew gradle.properties build.xml ivy.xml build.sbt build.sc "
    "build.properties lombok.config workspace build module buck targets pants.toml deps.edn "
    "project.clj bb.edn shadow-cljs.edn nuget.config packages.config app.config web.config "
    "global.json launchsettings.json dotnet-tools.json "
    # Ruby, PHP, Elixir, Perl, R, Haskell, OCaml, Dart
    "gems.rb gems.locked config.ru spec_helper.rb rails_helper.rb test_helper.rb composer.json "
    "composer.lock phpunit.xml psalm.xml rector.php ecs.php castor.php deploy.php bootstrap.php "
    "php.ini artisan captainhook.json grumphp.yml codeception.yml behat.yml infection.json "
    "pint.json mix.exs mix.lock config.exs runtime.exs dev.exs prod.exs test.exs "
    "test_helper.exs rebar.config rebar.lock makefile.pl build.pl cpanfile dist.ini _targets.r "
    "setup.hs stack.yaml cabal.project dune dune-project pubspec.yaml build.yaml dub.json "
    "dub.sdl config.nims shard.yml "
    # tasks, CI, what deploys
    "lefthook.yml lefthook.yaml lefthook.toml lefthook-local.yml mise.toml mise.local.toml "
    "devbox.json flake.lock action.yml action.yaml azure-pipelines.yml bitbucket-pipelines.yml "
    "appveyor.yml circle.yml cloudbuild.yaml cloudbuild.yml buildspec.yml codemagic.yaml "
    "bitrise.yml skaffold.yaml chart.yaml pulumi.yaml cdk.json ansible.cfg playbook.yml "
    "serverless.yml samconfig.toml netlify.toml vercel.json firebase.json wrangler.toml "
    "wrangler.json wrangler.jsonc fly.toml render.yaml app.yaml app.json supervisord.conf "
    "uwsgi.ini process-compose.yaml crontab earthfile "
    # git: a directory with the first is a repository; agents
    "head mcp.json opencode.json opencode.jsonc crush.json plugin.json claude.md "
    "claude.local.md agents.md agents.override.md agent.md gemini.md qwen.md crush.md warp.md "
    "codex.md kimi.md conventions.md copilot-instructions.md skill.md"
)
_RUN_ENDINGS = _words(
    ".mk .cmake .ctest .gradle .gradle.kts .gemspec .rake .pth .start .egg-link .csproj .fsproj "
    ".vbproj .vcxproj .proj .sln .slnx .targets .props .rsp .nuspec .csx .cake .tasks .sbt "
    ".mill .sh .bash .zsh .fish .ps1 .psm1 .psd1 .bat .cmd .vbs .command .bzl .bazel .nix "
    ".ninja .gyp .gypi .gn .gni .pro .pri .podspec .pbxproj .xcconfig .xcscheme .cabal .opam "
    ".nimble .nims .so .dll .dylib .exe .node .pyc .pyd .jar .war .class .wasm .desktop "
    ".service .timer .lnk .url .tf .hcl .tfvars .patch .diff .just .neon .neon.dist .xml.dist "
    ".dist.xml .code-workspace .sublime-project .iml .el .vim .mdc .instructions.md .prompt.md "
    ".chatmode.md"
)
_RUN_CONFIGURED = re.compile(
    r".*[.-]?(?:config|conf)\.(?:[\w-]+\.)*(?:[cm]?[jt]sx?|json)|.*rc\.(?:[cm]?js|json|ya?ml)"
    r"|(?:docker-)?compose[\w.-]*\.ya?ml|[tj]sconfig[\w.-]*\.json|taskfile[\w.-]*\.ya?ml"
    r"|(?:requirements|constraints)[\w.-]*\.(?:txt|in)|dockerfile[\w.-]+|containerfile[\w.-]+"
    r"|jest[.-](?:setup|preset)\..*|setup-?jest\..*|vitest\..*|.*\.config"
    r"|.*[.-]conf\.py|(?:jupyter|ipython)\w*config\.py"
    r"|\w*file(?:\.(?:lock|dev|dist|local|win))?|(?:gulp|grunt|jake|rake|guard|danger)file\..*"
)
_RUN_BELOW = _words(
    "node_modules jspm_packages bower_components venv virtualenv env site-packages "
    "dist-packages vendor pods carthage deps hooks githooks git-hooks bin sbin libexec scripts "
    "script ci gradle buildsrc build-logic magefiles debian patches dist target build _build "
    "__pycache__"
)


def is_run_by_tools(parts: Sequence[str]) -> bool:
    """Return whether a file, a path below the session's directory, is one of those."""
    *folders, name = [part.casefold() for part in parts] or [""]
    return (
        any(part.startswith(".") for part in (*folders, name))
        or not _RUN_BELOW.isdisjoint(folders)
        or name in _RUN_NAMES
        or name.endswith(tuple(_RUN_ENDINGS))
        or _RUN_CONFIGURED.fullmatch(name) is not None
    )
