# Short names for the presets of CMakePresets.json and the scripts; nothing is decided here.
PREFIX ?= /usr/local

all:
	cmake --preset release
	cmake --build build/release

demo:
	scripts/demo

test:
	scripts/test

bench: all
	python3 bench/engine.py models/plain.gguf

install: all
	cmake --install build/release --prefix "$(DESTDIR)$(PREFIX)"

clean:
	rm -rf build

.PHONY: all demo test bench install clean
