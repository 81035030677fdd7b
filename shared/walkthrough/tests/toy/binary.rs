//! The toy archetype of the tests, with the `main` that every archetype has. The tests of the
//! command line run it, and so can you: `cargo run -p walkthrough -- --help`.

#[path = "mod.rs"]
mod toy;

fn main() -> std::process::ExitCode {
    walkthrough::main(toy::ARCHETYPE)
}
