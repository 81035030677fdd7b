//! `cargo run -p ticket-holds` tells the story; `-- --help` lists the rest.

fn main() -> std::process::ExitCode {
    walkthrough::main(ticket_holds::archetype())
}
