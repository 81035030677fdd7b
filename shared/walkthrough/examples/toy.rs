//! The toy archetype of the tests, with the `main` that every archetype has:
//! `cargo run -p walkthrough --example toy -- --help`.

#[path = "../tests/toy/mod.rs"]
mod toy;

fn main() -> std::process::ExitCode {
    walkthrough::main(toy::ARCHETYPE)
}
