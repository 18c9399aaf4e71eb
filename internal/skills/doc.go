// Package skills reads, checks and stores skills: programs and instructions that are kept for later tasks. A skill is
// a directory in the public Agent Skills format (agentskills.io):
//
//	double-number/SKILL.md         frontmatter with name and description, then instructions
//	double-number/scripts/run.py   the program, if the skill has one
//
// Programs import it as skills.double_number, with the function run. The package does not run skills, and knows
// neither the queue nor HTTP. The key types are Skill, in memory, and Library, which has the skills of all tenants and
// of the fleet.
package skills
